"""Simulates schedules on a virtual clock, to see overlaps, queues and misfires beforehand.

Pure. A *simulation* plays the fires of a set of schedules (the *stage*) through a stretch of time
that nobody has to wait for. It reads nothing and changes nothing; `operations.simulating` reads the
stage from the tables. The same stage always gives the same simulation.

The model, by discrete events:

- Fires come from `common.firing.plan_fires` itself, so that zones, clock changes, windows, misfire
  policies and deadlines are those of the real schedule loop. A master is always there and fires at
  once, except in an *outage*; when that is over, everything due is planned as of that moment.
- A fire becomes a run. It has its definition's *run cost*: a duration and, from its beginning to
  its end, the most slots that its tasks have ever had at the same time, on workers and in pools.
  Run costs come from history, and are assumed where there is none.
- `execution_type`, the schedule's own or else the definition's, decides between runs of one
  definition: PARALLEL ones overlap, which is counted; SERIAL_WAIT ones begin one after the other in
  the order of their fires; SERIAL_DISCARD ones are discarded while another is live; a
  SERIAL_PRIORITY one stops all others at once.
- A run begins when all its slots are free. Those that wait go by priority, then by fire time; none
  passes another that waits for the same kind of slot. A run that needs more than there is gets all
  of it, and takes no longer for that.
- At one instant, what ends does so before what begins. A run whose end falls into an outage ends
  when that is over, since nobody is there to see it.

Out of scope: runs that are live already, complements and runs that people start; failures, retries
and waits for other definitions (DEPENDENT), except as far as the durations of the past contain
them; a master's limit of runs; worker groups, that is, every slot suits every task; and that the
durations of the past contain the waiting of the past.

| module          | decides                                                             |
|-----------------|---------------------------------------------------------------------|
| `run_cost`      | the duration and the slots of a run, by history or by assumption    |
| `fires`         | the fires, and the instants at which they are carried out           |
| `clock_changes` | the dates on which a clock change shifts, skips or doubles fires    |
| `timeline`      | the beginning and the end of each run; waits, overlaps and discards |
| `findings`      | the problems, as sentences                                          |
| `report`        | the shape of the outcome                                            |
"""

from common.schedule_simulator.clock_changes import ClockChange, ClockChangeKind
from common.schedule_simulator.fires import MAX_FIRES, Outage, Stage, TooManyFiresError
from common.schedule_simulator.report import (
    ClusterReport,
    PoolReport,
    Problem,
    ProblemKind,
    ScheduleReport,
    Simulation,
)
from common.schedule_simulator.run_cost import Peak, RunCost, peak_of, run_cost_of
from common.schedule_simulator.timeline import simulate

__all__ = [
    "MAX_FIRES",
    "ClockChange",
    "ClockChangeKind",
    "ClusterReport",
    "Outage",
    "Peak",
    "PoolReport",
    "Problem",
    "ProblemKind",
    "RunCost",
    "ScheduleReport",
    "Simulation",
    "Stage",
    "TooManyFiresError",
    "peak_of",
    "run_cost_of",
    "simulate",
]

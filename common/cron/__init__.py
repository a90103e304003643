"""Reads Quartz cron lines and computes their fires on the wall clock of a time zone.

Pure: it takes instants and returns instants; it reads no clock and no table, so schedules,
complement runs, previews and simulations all see the very same fire times. A *line* is the text of
a cron (six or seven fields), a *wall time* is what the clock of a zone shows, an *instant* is a
moment of time in UTC. A `Cron` has wall times alone; a `Timetable` puts it on the clock of a
zone, by a policy for the wall times that this clock skips or shows twice.

| module      | decides                                                                  |
|-------------|--------------------------------------------------------------------------|
| `fields`    | the fields of a line, or the position of its mistake; Quartz's rules     |
| `unix`      | the answer to a Unix line; the one place that knows croniter             |
| `days`      | the days of a year that a line means                                     |
| `line`      | `Cron`: the wall times of a line, rising or falling                      |
| `words`     | the line in words                                                        |
| `cycles`    | the largest and smallest cycle of a line (minute, hour, day, …)          |
| `zones`     | the jumps of a zone's clock, and the instants of its wall times          |
| `timetable` | `Timetable`: fire times within a window; several of them `merged`        |
"""

from common.cron.cycles import Cycle, max_cycle, min_cycle
from common.cron.fields import MAX_LENGTH, CronError
from common.cron.line import Cron
from common.cron.timetable import Timetable, merged
from common.cron.zones import MissingTime, RepeatedTime

__all__ = [
    "MAX_LENGTH",
    "Cron",
    "CronError",
    "Cycle",
    "MissingTime",
    "RepeatedTime",
    "Timetable",
    "max_cycle",
    "merged",
    "min_cycle",
]

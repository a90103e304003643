"""Reads Quartz cron lines and says when they fire on the wall clock of a time zone.

Pure: it is given instants and answers with instants; it reads no clock and no table, so schedules,
complement runs, previews and simulations all see the very same fire times. A *line* is the text of
a cron (six or seven fields), a *wall time* is what the clock of a zone shows, an *instant* is a
moment of time in UTC. A `Cron` knows wall times alone; a `Timetable` puts it on the clock of a
zone and says what becomes of the wall times which that clock skips or shows twice.

| module      | decides                                                                  |
|-------------|--------------------------------------------------------------------------|
| `fields`    | what a line says, or at which position it is wrong; Quartz's rules       |
| `unix`      | what to say to a Unix line; the one place that knows croniter            |
| `days`      | which days of a year a line means                                        |
| `line`      | `Cron`: the wall times of a line, rising or falling                      |
| `words`     | the line in words                                                        |
| `cycles`    | how often a line fires at most and at least (minute, hour, day, …)       |
| `zones`     | where the clock of a zone jumps, and the instants of its wall times      |
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

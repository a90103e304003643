"""Computes with the clocks of a zone: floors, ceilings, shifts and parts of times.

Times are microseconds since 1970, and so are *walls*: what the clock of the zone shows, counted as
if it were UTC. Days, weeks and months are cut on the wall. A wall time that a zone skips is the
moment after the gap; a wall time that occurs twice is the first. Without a zone ("") all is in UTC.
The session has to be in UTC.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from common.model.streams.periods import Granularity, read_granularity
from worker.spark.streaming import times

_MINUTE: Final = 60 * times.SECOND
_YEAR: Final = read_granularity("YEAR")
_HAS_OFFSET: Final = "[Tt ].*([Zz]|[+-][0-9:]+)$"


def wall_of(micros: Column, zone: str) -> Column:
    """Return what the clock of a zone shows at a time."""
    if not zone:
        return micros
    return f.unix_micros(f.from_utc_timestamp(f.timestamp_micros(micros), zone))


def time_at(wall: Column, zone: str) -> Column:
    """Return the time at which the clock of a zone shows this."""
    if not zone:
        return wall
    return f.unix_micros(f.to_utc_timestamp(f.timestamp_micros(wall), zone))


def floor(micros: Column, period: Granularity, zone: str, *, of_hours: bool) -> Column:
    """Return the start of the period with a time; periods `of_hours` are an hour at most."""
    wall = wall_of(micros, zone)
    start = times.chunk_start(wall, period)
    # Within an hour that the clock shows twice, the wall does not tell the offset.
    return micros - (wall - start) if of_hours else time_at(start, zone)


def ceil(micros: Column, period: Granularity, zone: str, *, of_hours: bool) -> Column:
    """Return the end of the period with a time, or the time itself at the start of a period."""
    wall = wall_of(micros, zone)
    start = times.chunk_start(wall, period)
    end = times.chunk_end(start, period)
    behind = micros + (end - wall) if of_hours else time_at(end, zone)
    return f.when(start == wall, micros).otherwise(behind)


def shift(micros: Column, period: Granularity, steps: Column, zone: str) -> Column:
    """Return the time that is some periods later; null for one that no number holds."""
    wall = wall_of(micros, zone)
    if period.months:
        bounded = f.when(f.abs(steps) < 120_000, steps * period.months)
        moved = f.unix_micros(f.timestamp_add("MONTH", bounded, f.timestamp_micros(wall)))
    else:
        length = f.lit(times.length_micros(period)).cast("bigint")
        moved = f.try_add(wall, f.try_multiply(steps, length))
        if zone:
            moved = times.usable(moved, _YEAR)
    return time_at(moved, zone)


def offset_text(micros: Column, zone: str) -> Column:
    """Return the offset of a zone at a time, as in +01:00; Z for UTC."""
    if not zone:
        return f.lit("Z")
    minutes = f.call_function("div", wall_of(micros, zone) - micros, f.lit(_MINUTE))
    size = f.abs(minutes)
    sign = f.when(minutes < 0, "-").otherwise("+")
    return f.concat(
        sign, f.format_string("%02d:%02d", f.call_function("div", size, f.lit(60)), size % 60)
    )


def placed(micros: Column, written: Column, zone: str) -> Column:
    """Return the time of an ISO text that was read in UTC; without an offset it is in the zone."""
    if not zone:
        return micros
    is_whole = f.regexp_like(f.trim(written), f.lit(_HAS_OFFSET))
    return f.when(is_whole, micros).otherwise(only_time_at(micros, zone))


def only_time_at(wall: Column, zone: str) -> Column:
    """Return the time at which the clock of a zone shows this, null for what it never shows."""
    found = time_at(wall, zone)
    return f.when(wall_of(found, zone) == wall, found)

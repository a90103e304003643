"""The Quartz equal of a line of Unix cron, for the message that refuses it.

Pure. People paste `30 2 * * 1-5` and `@daily` where Quartz is asked for; numbers of week days mean
other days there. This is all that croniter is used for outside the tests: it reads such a line, so
that the refusal can offer the same line in Quartz. It never reads a Quartz line, whose days it
would take for others without an error, and it is imported only when a line is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

# What croniter knows beyond Unix (random days, days by hash) has no equal in Quartz.
_DAYS_OF_WEEK = re.compile(r"(?:[0-9*,/-]|SUN|MON|TUE|WED|THU|FRI|SAT)+", re.IGNORECASE)


def quartz_of_unix(text: str) -> str | None:
    """The Quartz line that fires as a five-field Unix line or `@name` does, or None."""
    words = text.split()
    if len(words) != 5 and not (len(words) == 1 and text.startswith("@")):
        return None
    # Importing it takes a good part of the time in which the command line should be up.
    from croniter import CroniterError, croniter

    try:
        expanded = croniter.expand(text)[0]
    except (CroniterError, ValueError):
        return None
    if len(expanded) != 5:
        return None
    if len(words) == 1:
        words = [_listed(values) for values in expanded]
    minutes, hours, days, months, written = words
    week_days = expanded[4]
    if week_days == ["*"]:
        return f"0 {minutes} {hours} {days} {months} ?"
    # With both days given, Unix fires on either: no Quartz line does.
    if expanded[2] != ["*"] or not _DAYS_OF_WEEK.fullmatch(written):
        return None
    return f"0 {minutes} {hours} ? {months} {_listed(sorted(day % 7 + 1 for day in week_days))}"


def _listed(values: Sequence[int | str]) -> str:
    """Numbers as a field, with a range where they follow each other."""
    if len(values) > 2 and all(
        isinstance(low, int) and high == low + 1 for low, high in pairwise(values)
    ):
        return f"{values[0]}-{values[-1]}"
    return ",".join(str(value) for value in values)

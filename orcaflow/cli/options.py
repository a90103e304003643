"""Readers of options that several commands share."""

from __future__ import annotations

from datetime import timedelta

import typer

_UNITS = {"s": 1, "m": 60, "h": 3600}


def patience_of(timeout: str | None, *, wait: bool) -> timedelta | None:
    """The span of `--timeout`; None waits for ever. A usage error without `--wait`."""
    if timeout is None:
        return None
    if not wait:
        raise typer.BadParameter("--timeout needs --wait")
    return read_span(timeout)


def read_span(text: str) -> timedelta:
    """A time like 90, 90s, 10m or 2h."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
        if not 0 < seconds < 10_000_000:
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time, as 90s, 10m or 2h is", param_hint="--timeout"
        ) from None
    return timedelta(seconds=seconds)

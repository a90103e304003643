"""Tracebacks as a Spark user wants to read them: from the author's script on, and no further.

Pure but for the lines of source that Python's own tracebacks look up. Frames of ours are left out;
for an error that Spark reports, so are the frames of the library between the author's call and it,
and all that its text has besides what went wrong: stacks of Java's, plans, and Spark's own Python.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from worker.spark.diagnosis import texts
from worker.spark.diagnosis.failures import is_of_spark, message

_OURS: Final = str(Path(__file__).resolve().parents[1]) + "/"
_LIBRARIES: Final = ("/pyspark/", "/py4j/", "/grpc/", "<frozen ")
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


def shown(error: BaseException, *, script: str = "") -> str:
    """The traceback of an error, with those that led to it."""
    return "".join(_lines(error, script, {id(error)})).rstrip("\n")


def _lines(error: BaseException, script: str, seen: set[int]) -> Iterator[str]:
    earlier, words = error.__cause__, _CAUSE
    if earlier is None and not error.__suppress_context__:
        earlier, words = error.__context__, _CONTEXT
    # What Spark's own Python met with on its way is of no use to anybody else.
    if earlier is not None and id(earlier) not in seen and not is_of_spark(error):
        seen.add(id(earlier))
        yield from _lines(earlier, script, seen)
        yield words
    shown = traceback.TracebackException.from_exception(error, compact=True)
    frames = _frames(shown, script, error)
    if frames:
        yield "Traceback (most recent call last):\n"
        yield from traceback.StackSummary.from_list(frames).format()
    if is_of_spark(error):
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}"
        text = texts.shortened(message(error))
        yield f"{name}: {text}\n" if text else f"{name}\n"
    else:
        yield from shown.format_exception_only()


def _frames(
    shown: traceback.TracebackException, script: str, error: BaseException
) -> list[traceback.FrameSummary]:
    frames = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
    begin = next((n for n, frame in enumerate(frames) if frame.filename == script), None)
    if begin is None and isinstance(error, SyntaxError) and error.filename == script:
        return []  # It never ran.
    frames = frames[begin or 0 :]
    if is_of_spark(error):
        frames = [frame for frame in frames if not any(n in frame.filename for n in _LIBRARIES)]
    return frames

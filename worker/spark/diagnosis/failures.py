"""Explains an error of Spark or Python: a reason, a sentence and perhaps a cure.

Pure and without pyspark: an error is known by the names of its classes, by the condition that
Spark gives it, and by its text. The text is the same for a private driver, for Spark Connect and
in the log of a driver that ran elsewhere, so all three are explained alike; what differs is how
much there is beside it. Where several things went wrong, the one that led to the others counts.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.model.failures import FailureReason
from worker.spark.diagnosis import known_failures as known
from worker.spark.diagnosis import texts

_LIBRARIES: Final = ("pyspark.", "py4j.", "grpc.")

# What Python can only say of a JVM that has gone.
_OF_SILENCE = (FailureReason.EXIT_CODE, FailureReason.SERVER_LOST)
_REFUSED = "Connection refused"
SCRIPT_MARK: Final = "__orcaflow__"
"""The global name that every author's script has."""
_LATE_PYTHON = "Python worker failed to connect back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The explanation of a failure."""

    reason: FailureReason
    sentence: str
    hint: str = ""

    @property
    def one_line(self) -> str:
        """For a row."""
        return f"{self.sentence} ({self.hint})" if self.hint else self.sentence


class WorkFailedError(Exception):
    """The work ended badly for a reason that is known and needs no traceback."""

    def __init__(
        self, sentence: str, reason: FailureReason, *, hint: str = "", exit_code: int = 1
    ) -> None:
        super().__init__(sentence)
        self.explained = Explained(reason=reason, sentence=sentence, hint=hint)
        self.exit_code = exit_code


def is_late_python(error: BaseException) -> bool:
    """Return True if a process for Python had not begun after the ten seconds that Spark gives it.

    That is a matter of how busy the computer is, and not of the work, which has not begun either.
    """
    return _LATE_PYTHON in str(error)


def explain(error: BaseException) -> Explained:
    """Explain an exception of PySpark, classic or Connect, or of plain Python."""
    if isinstance(error, WorkFailedError):
        return error.explained
    classes = [each for each in type(error).__mro__ if each is not object]
    names = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    found = explain_text(
        message(error),
        condition=condition(error),
        state=_asked(error, "getSqlState"),
        classes=names,
    )
    if names[0] == known.LATE_CLASS and not found.hint and _is_of_script(error):
        return replace(found, hint=known.LATE)
    return found


def is_of_spark(error: BaseException) -> bool:
    """True if Spark or a library below it has reported this, and not the author's Python."""
    return type(error).__module__.startswith(_LIBRARIES)


def message(error: BaseException) -> str:
    """The text of an error; "" if it has none, or its JVM is gone and can't be asked."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # Errors of a JVM are looked up in it.
        return ""


def condition(error: BaseException) -> str:
    """Spark's name for what is wrong, such as `TABLE_OR_VIEW_NOT_FOUND`; "" if it has none."""
    return _asked(error, "getCondition")


def explain_text(
    text: str, *, condition: str = "", state: str = "", classes: Sequence[str]
) -> Explained:
    """Explain an exception of these classes, the most special first, with this text."""
    name = classes[0]
    if not name.startswith(_LIBRARIES):
        return _of_python(name, text)
    short = texts.headline(text)
    found = (
        _first(known.TROUBLE, text)
        or _of_condition(condition or texts.condition(text), state or texts.state(text), text, name)
        or _first(known.CAUSES, text)
        or _of_library(classes, short)
    )
    return _with_package(found, text)


def _with_package(found: Explained, text: str) -> Explained:
    """Name the package in the hint for a missing class."""
    if found.hint != known.JARS:
        return found
    line = texts.headline(text)
    named = (package for sign, package in known.PACKAGES if re.search(sign, line))
    return replace(found, hint=known.JARS.format(next(named, known.ANY_PACKAGE)))


def _is_of_script(error: BaseException) -> bool:
    """Return True if an author's script was running, and not statements of SQL or rules."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(SCRIPT_MARK in frame.f_globals for frame in frames)


def explain_log(log: str) -> Explained | None:
    """Explain a driver's log, of which the end is enough; None if nothing in it is known."""
    found = _first(known.SUBMISSION, log)
    if found is not None:
        return found
    error = texts.last_error(log)
    if not error:
        return _first(known.LAST_WORDS, log) or _first(known.TROUBLE, texts.serious(log))
    name, _, said = error.partition(": ")
    if texts.is_of_python(error):
        found = explain_text(said, classes=[name.strip()])
    else:
        found = explain_text(error, classes=[f"{_LIBRARIES[0]}{name}"])
    is_by_silence = found.reason in _OF_SILENCE or _REFUSED in error
    return (is_by_silence and _of_memory(texts.serious(log))) or found


def _of_memory(log: str) -> Explained | None:
    """Explain Java's end by lack of memory, after which it says nothing to Python."""
    found = _first(known.TROUBLE, log)
    return found if found is not None and found.reason is FailureReason.OUT_OF_MEMORY else None


def _first(rules: Sequence[known.Rule], text: str) -> Explained | None:
    for rule in rules:
        found = rule.pattern.search(text)
        if found is not None:
            before = text[: found.start()].rstrip().rpartition("\n")[2]
            said = [(each or "").strip(" \n.") for each in (found[0], *found.groups())]
            sentence = rule.sentence.format(*said, before=before) or texts.headline(text)
            return Explained(reason=rule.reason, sentence=sentence.rstrip(": "), hint=rule.hint)
    return None


def _of_condition(name: str, state: str, text: str, error: str) -> Explained | None:
    short = texts.headline(text)
    for pattern, reason, hint in known.CONDITIONS:
        if name and re.fullmatch(pattern, name):
            cause = texts.root_cause(text) if name.endswith("NO_HINT") else ""
            told = f"{short.rstrip('.')}: {cause}" if cause else short
            return Explained(reason=reason, sentence=told, hint=hint)
    reason_of_state = known.STATES.get(state[:2])
    if reason_of_state is None or error.startswith(known.CHECKED_IN_PYTHON):
        return None
    return Explained(reason=reason_of_state, sentence=short)


def _of_library(classes: Sequence[str], short: str) -> Explained:
    """An error of PySpark's, Py4J's or gRPC's without any other detail."""
    names = {each.rpartition(".")[2] for each in classes}
    if "AnalysisException" in names:
        reason = FailureReason.ANALYSIS_ERROR
    elif names & known.CLASSES_OF_VALUES or re.match(r"java\.(io|nio|sql)\.", short):
        reason = FailureReason.DATA_ERROR
    elif names & known.CLASSES_OF_PYTHON or classes[0].startswith(known.CHECKED_IN_PYTHON):
        reason = FailureReason.PYTHON_ERROR
    elif re.search(r"Method \S+\(.*\) does not exist", short):
        reason = FailureReason.PYTHON_ERROR  # Of these types; the author gave them.
    else:
        reason = FailureReason.EXIT_CODE
    return Explained(reason=reason, sentence=short or classes[0])


def _of_python(name: str, text: str) -> Explained:
    """An error of the author's Python, on the driver."""
    short = name.rpartition(".")[2]
    said = texts.first_line(text)
    sentence = f"{short}: {said}" if said else short
    hint = ""
    reason = FailureReason.PYTHON_ERROR
    if short == "MemoryError":
        reason, sentence = FailureReason.OUT_OF_MEMORY, "Python ran out of memory"
    elif short == "ModuleNotFoundError":
        hint = "give the task an `environment` that has it, or `pyFiles`; or install it for all"
    elif short == "AttributeError" and said == "'NoneType' object has no attribute 'sc'":
        hint = "the session was stopped before: leave `spark.stop()` out, it is done for you"
    return Explained(reason=reason, sentence=sentence, hint=hint)


def _asked(error: BaseException, method: str) -> str:
    get: Callable[[], str | None] | None = getattr(error, method, None)
    try:
        return (get() or "") if get is not None else ""
    except Exception:  # noqa: BLE001  # Errors of a JVM are looked up in it.
        return ""

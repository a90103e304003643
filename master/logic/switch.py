"""Decides which branch a SWITCH takes (contract §1.20.4).

Pure. Conditions are evaluated in the order written; the first true one wins, one without text is
true, and the default comes last. A condition that can't be evaluated fails the task: taking another
branch instead would run tasks that the author did not want. A condition with a value that this
master can't decrypt also fails the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.expressions import Expression, ExpressionError
from common.model.control import Switch
from common.sealed_tokens import key_of

_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The targets that run; all other direct successors are skipped. `why` is for the log."""

    targets: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """No branch can be taken, so the task fails; `why` names the cause and the place."""

    why: str


def choose(switch: Switch, values: Mapping[str, str]) -> Choice | Undecided:
    """Choose the branch for these parameters. `why` never repeats values: some are secret."""
    for number, branch in enumerate(switch.branches, start=1):
        expression = branch.expression
        if expression is None:
            return _chosen(branch.targets, f"branch {number} has no condition")
        encrypted = _encrypted(expression, values)
        if encrypted is not None:
            return Undecided(why=f"the condition of branch {number} can't be decided: {encrypted}")
        try:
            holds = expression.evaluate(values)
        except ExpressionError as error:
            return Undecided(
                why=f"the condition of branch {number} can't be decided: {error},"
                f" in {_shown(expression.text)}"
            )
        if holds:
            return _chosen(branch.targets, f"branch {number} holds: {_shown(expression.text)}")
    return _chosen(switch.default, "no condition holds: the default is taken")


def _encrypted(expression: Expression, values: Mapping[str, str]) -> str | None:
    """Return the reason if a condition compares an encrypted value, else None."""
    compared = [
        (f"the parameter {name!r:.200}", values.get(name)) for name in expression.parameters
    ]
    for what, value in (*compared, ("a value in it", expression.text)):
        key = None if value is None else key_of(value)
        if key is not None:
            return (
                f"{what} is encrypted with the key {key}, which this master lacks: copy the key"
                " file to the master's host"
            )
    return None


def _chosen(targets: tuple[str, ...], why: str) -> Choice | Undecided:
    return Choice(targets=targets, why=why) if targets else Undecided(why=f"{why}, but names none")


def _shown(text: str) -> str:
    short = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
    # On one line of the log, whatever the author wrote.
    return "".join(symbol if symbol.isprintable() else " " for symbol in short)

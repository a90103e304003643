"""`${name}`: puts the values of parameters in a text.

A value may refer to others, and so may a name (`${day_${region}}`). Nothing is escaped: `$${x}`
gives a `$` and the value. A name without a value stays as it was written, so that the variables of
a shell survive. Cycles, deep chains and values that multiply (`a=${b}${b}`, `b=${c}${c}`, …) are
errors, found before they cost time or memory.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from common.params.enclosed import BRACES, replace_enclosed
from common.params.errors import CircularParameterError, ParameterLimitError, shown

NAME_REFERENCE = re.compile(r"!\{([A-Za-z_][\w.-]{0,100})\}")
"""A `!{name}` of SQL, which a value that is a name replaces."""

MAX_CHAIN = 10
"""The longest chain of references between parameters."""

MAX_INSERTED_CHARS = 1024 * 1024
"""The most characters that all values in one text may have together."""

MAX_TOTAL_CHARS = 16 * MAX_INSERTED_CHARS
"""The same over all texts that are worked out together, values of parameters included."""


def replace_references(text: str, parameters: Mapping[str, str]) -> str:
    """The text with every known `${name}` replaced; `ParameterError` on cycles and excess."""
    return References(parameters).replace(text)


def references_in(text: str, parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known parameters that a text refers to itself, each once, in their order."""
    found: dict[str, None] = {}

    def note(name: str) -> str | None:
        if name in parameters:
            found[name] = None
            return ""
        return None

    replace_enclosed(text, BRACES, note)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Replaced:
    text: str
    chain: tuple[str, ...]
    """The longest chain of names that the text needed."""


class References:
    """The parameters that texts may refer to; each value is worked out once."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._values: dict[str, _Replaced] = {}
        self._open: dict[str, None] = {}  # The names being worked out, outermost first.
        self._inserted = 0

    def replace(self, text: str) -> str:
        return self._replace(text).text

    def value(self, name: str) -> str:
        """The value of a known parameter, with its references replaced."""
        return self._value(name).text

    def _replace(self, text: str) -> _Replaced:
        chain: tuple[str, ...] = ()
        inserted = 0

        def value_of(name: str) -> str | None:
            nonlocal chain, inserted
            if name not in self._parameters:
                return None
            found = self._value(name)
            if len(found.chain) > len(chain):
                chain = found.chain
            inserted += len(found.text)
            self._inserted += len(found.text)
            if inserted > MAX_INSERTED_CHARS or self._inserted > MAX_TOTAL_CHARS:
                raise ParameterLimitError(
                    f"parameter values grow too large at {shown(name)}: more than"
                    f" {MAX_INSERTED_CHARS} characters in one text or {MAX_TOTAL_CHARS} in all"
                )
            return found.text

        replaced = replace_enclosed(text, BRACES, value_of)
        return _Replaced(replaced, chain)

    def _value(self, name: str) -> _Replaced:
        known = self._values.get(name)
        if known is None:
            if name in self._open:
                names = list(self._open)
                raise CircularParameterError([*names[names.index(name) :], name])
            self._open[name] = None
            try:
                # Checked on the way down too: the chain must end before Python's own stack does.
                self._check_chain(())
                inner = self._replace(self._parameters[name])
            finally:
                del self._open[name]
            known = _Replaced(inner.text, (name, *inner.chain))
            self._values[name] = known
        # What was worked out earlier counts as deep as it is, so that the order of the parameters
        # does not decide whether they are too deep.
        self._check_chain(known.chain)
        return known

    def _check_chain(self, inner: tuple[str, ...]) -> None:
        if len(self._open) + len(inner) > MAX_CHAIN:
            chain = (*self._open, *inner)[: MAX_CHAIN + 1]
            raise ParameterLimitError(
                f"parameters refer to each other more than {MAX_CHAIN} deep:"
                f" {' -> '.join(map(shown, chain))}"
            )

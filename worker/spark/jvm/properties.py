"""Settings of Spark as a properties file has them, which keeps them out of every command line.

Pure. Spark reads such a file as Java does, in UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PAIR = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*\Z")


def rendered(conf: Mapping[str, str]) -> str:
    """The lines of a file."""
    return "".join(f"{_escaped(key)} = {_value(text)}\n" for key, text in conf.items())


def read(text: str) -> dict[str, str]:
    """The settings of a file that a person wrote, but for what goes over several lines."""
    found = (_PAIR.match(line) for line in text.splitlines())
    return {pair[1]: pair[2] for pair in found if pair is not None}


def _escaped(key: str) -> str:
    return re.sub(r"([\\ :=#!\t\f])", r"\\\1", key)


def _value(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # What it begins with would be taken for the space before it.
    return f"\\{text}" if text[:1] in (" ", "\t", "\f") else text

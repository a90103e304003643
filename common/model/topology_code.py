"""The limits of a topology's code: names and sizes of its files, and the name of its main one.

Pure. The code is checked where it is packed and again where it is stored, since anybody may have
sent it. Nothing here imports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from common.model.topologies import Code, DocumentError

MOST_BYTES: Final = 1024 * 1024
MOST_FILES: Final = 200
YAML_SUFFIXES: Final = (".yaml", ".yml")
_SUFFIXES: Final = (".py", *YAML_SUFFIXES)
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_DEEPEST: Final = 10
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def read_code(document: object) -> Code:
    """Read a code that was sent; `DocumentError` names all that is wrong with it."""
    if not isinstance(document, dict) or not isinstance(document.get("files"), dict):
        raise DocumentError("code must be an object with main and files")
    files, main = document["files"], document.get("main")
    if not isinstance(main, str) or not all(isinstance(text, str) for text in files.values()):
        raise DocumentError("code: main and the files must be texts")
    code = Code(main=main, files=files)
    mistakes = list(mistakes_of(code))
    if mistakes:
        raise DocumentError("; ".join(mistakes))
    return code


def mistakes_of(code: Code) -> Iterator[str]:
    """Yield what is wrong with the names and sizes of the files."""
    file, _, attribute = code.main.partition(":")
    if file not in code.files:
        yield f"{file!r:.120} is not among the files"
    elif file.endswith(".py") and not _ATTRIBUTE.fullmatch(attribute):
        yield (
            f"{code.main!r:.120} names no variable or function of a Python file, as"
            " words.py:topology does"
        )
    elif not file.endswith(".py") and (attribute or not file.endswith(YAML_SUFFIXES)):
        yield f"{code.main!r:.120} is neither a YAML file nor a Python file with a name behind ':'"
    if len(code.files) > MOST_FILES:
        yield f"{len(code.files):,} files are more than {MOST_FILES}"
    for name, text in code.files.items():
        if not is_file_name(name):
            yield (
                f"{name!r:.120} is no name of a file here: letters, digits, '_', '-' and '.', with"
                " / between folders, and .py, .yaml or .yml at its end"
            )
        if "\0" in text:
            yield f"{name!r:.120} has a NUL character"
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in code.files.values())
    if size > MOST_BYTES:
        yield (
            f"the files have {size:,} bytes, and {MOST_BYTES:,} at most go with a topology; install"
            " large modules on the workers"
        )


def is_file_name(name: str) -> bool:
    """Return True for a name below the folder of the code, with a suffix that is known."""
    parts = name.split("/")
    return (
        len(parts) <= _DEEPEST
        and all(_PART.fullmatch(part) for part in parts)
        and name.endswith(_SUFFIXES)
    )

"""Reads definition files with the settings in force, as imports and lint do; needs no database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.config import home, spark_profiles, splices_scripts
from operations.definition_files import (
    DefinitionDocument,
    read_definition_files,
)
from operations.errors import UsageError
from operations.file_forms import STANDARD_INPUT
from operations.references import Kind


def read_files(
    files: Sequence[Path],
    *,
    name: str | None = None,
    mapped: Sequence[str] = (),
    strict: bool | None = None,
    standard_input: bytes = b"",
    inlines: bool = False,
) -> list[DefinitionDocument]:
    """All definitions of the files, or `InvalidFilesError` with every mistake of every file.

    The path `-` means `standard_input`. `name` is for a file with one definition; `mapped` holds
    texts KIND:ID=NAME, the names that ids of another database have here. `strict` makes unknown
    keys mistakes; None does so only in files of Orcaflow's form. `inlines` copies the scripts that
    tasks name into the definitions.
    """
    return read_definition_files(
        files,
        resources=home() / "resources",
        name=name,
        given=_given(mapped),
        strict=strict,
        profiles=spark_profiles(),
        splices_scripts=splices_scripts(),
        standard_input=standard_input,
        inlines=inlines,
    )


def read_content(
    content: bytes,
    *,
    resources: Path,
    name: str | None = None,
    mapped: Sequence[str] = (),
    strict: bool | None = None,
) -> list[DefinitionDocument]:
    """All definitions of what a file would hold; raises as `read_files` does.

    Paths must be absolute or within the folder of resources. No file is read, so the result does
    not reveal if a file exists.
    """
    return read_definition_files(
        [Path(STANDARD_INPUT)],
        resources=resources,
        name=name,
        given=_given(mapped),
        strict=strict,
        profiles=spark_profiles(),
        splices_scripts=splices_scripts(),
        standard_input=content,
        looks_up=False,
    )


def _given(pairs: Sequence[str]) -> dict[tuple[Kind, int], str]:
    kinds = {kind.value: kind for kind in Kind}
    given: dict[tuple[Kind, int], str] = {}
    for pair in pairs:
        kind, _, rest = pair.partition(":")
        number, equals, name = rest.partition("=")
        known = kinds.get(kind.strip())
        number = number.strip()
        if known is None or not equals or not number.isdecimal() or not name.strip():
            raise UsageError(
                "mapped",
                f"{pair!r} is not KIND:ID=NAME, as definition:42=load is;"
                f" KIND is one of {', '.join(kinds)}",
            )
        given[known, int(number[:19])] = name.strip()
    return given

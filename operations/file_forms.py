"""Reads the content of definition files, JSON or YAML, and recognizes files of another form.

A file of pydolphinscheduler holds no definition: it is a program, or a YAML file of other keys. It
is never run here. The mistake names the command that turns it into definitions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.strict_json import content_of, strict_json

STANDARD_INPUT: Final = "-"  # The path that means standard input.
_PACKAGE: Final = b"pydolphinscheduler"
_YAML: Final = (".yaml", ".yml")
_PYTHON: Final = (".py", ".pyw")


def read_content(path: Path, standard_input: bytes) -> Any:
    """Return the document in a file; `-` means `standard_input`.

    Raises `InvalidDefinitionError` with every mistake.
    """
    suffix = path.suffix.lower()
    if suffix in _PYTHON:
        raise InvalidDefinitionError((_of_program(path, content_of(path)),))
    if suffix in _YAML:
        # Most files are JSON, and reading YAML takes a while to import.
        from common.strict_yaml import strict_yaml

        document = strict_yaml(content_of(path))
    else:
        content = standard_input if str(path) == STANDARD_INPUT else content_of(path)
        try:
            document = strict_json(content)
        except InvalidDefinitionError as error:
            if _PACKAGE not in content:
                raise
            raise InvalidDefinitionError((_of_program(path, content),)) from error
    if _is_workflow_file(document):
        raise InvalidDefinitionError(
            (f"is a YAML file of pydolphinscheduler and no definition; {_cure(path)}",)
        )
    return document


def _is_workflow_file(document: object) -> bool:
    """Return True for the form of pydolphinscheduler: `workflow` beside a list of tasks."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("workflow"), dict)
        and isinstance(document.get("tasks"), list)
    )


def _of_program(path: Path, content: bytes) -> str:
    if _PACKAGE in content:
        return f"is a program of pydolphinscheduler and no definition; {_cure(path)}"
    return (
        "is a Python file and no definition; a definition is a JSON or YAML file, and"
        f" pydolphinscheduler's programs become such files: {_command(path)}"
    )


def _cure(path: Path) -> str:
    return (
        f"turn it into definition files where the package is installed, then import these:"
        f" {_command(path)}"
    )


def _command(path: Path) -> str:
    file = "FILE" if str(path) == STANDARD_INPUT else path
    return f"orcaflow definition convert {file} --to FOLDER"

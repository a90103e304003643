"""Files of another form than a definition's: the mistake names the command that converts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from operations.definition_files import InvalidFilesError, read_definition_files

PROGRAM = "import sys\nfrom pydolphinscheduler.core.workflow import Workflow\nsys.exit('it ran')\n"
WORKFLOW = """\
workflow:
  name: Shell
tasks:
  - name: first
    task_type: Shell
    command: echo 1
"""


def mistake(path: Path, standard_input: str = "") -> str:
    with pytest.raises(InvalidFilesError) as raised:
        read_definition_files(
            [path], resources=Path("/nowhere"), standard_input=standard_input.encode()
        )
    (found,) = raised.value.found
    return found.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tutorial.py", PROGRAM),
        ("tutorial.txt", PROGRAM),
        ("tutorial.yaml", WORKFLOW),
        ("other.PY", "x = 1\n"),
    ],
)
def test_a_file_of_pydolphinscheduler_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert f"orcaflow definition convert {path} --to FOLDER" in mistake(path)


def test_a_program_that_is_sent_as_text_is_not_run_and_the_mistake_names_the_command() -> None:
    assert "orcaflow definition convert FILE --to FOLDER" in mistake(Path("-"), PROGRAM)


def test_text_that_is_neither_json_nor_of_pydolphinscheduler_keeps_its_own_mistake(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tutorial.json"
    path.write_text("name: x\n")
    assert "not JSON" in mistake(path)

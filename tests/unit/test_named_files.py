"""Files that tasks name: inlined or pinned by digest, and never opened for a request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from operations.definition_files import InvalidFilesError, read_definition_files
from operations.linting import read_content
from tests.unit.preparing import prepared
from worker.launching.base import TaskParameterError

_SCRIPT = "print('first')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder with a script and a jar, next to a folder of resources."""
    made, resources = tmp_path / "definitions", tmp_path / "resources"
    for each in (made, resources):
        each.mkdir()
    (made / "clean.py").write_text(_SCRIPT)
    (made / "job.jar").write_bytes(b"jar")
    (resources / "words.txt").write_text("words")
    return made


def a_file(folder: Path, *tasks: dict[str, Any]) -> Path:
    path = folder / "nightly.json"
    nodes = [{"name": f"t{n}", "preTasks": [], **each} for n, each in enumerate(tasks)]
    path.write_text(json.dumps({"name": "nightly", "processDefinitionJson": {"tasks": nodes}}))
    return path


def params_of(folder: Path, *tasks: dict[str, Any], inlines: bool = False) -> list[dict[str, Any]]:
    (found,) = read_definition_files(
        [a_file(folder, *tasks)], resources=folder.parent / "resources", inlines=inlines
    )
    return [each["params"] for each in found.document["tasks"]]


def launched(home: Path, name: str, params: dict[str, Any]) -> str:
    """Return the message by which the launcher refuses a task; "" if it accepts the task."""
    (home / "tasks/logs/1/2").mkdir(parents=True)
    try:
        prepared(home, name, params)
    except TaskParameterError as error:
        return str(error)
    return ""


def python(**params: Any) -> dict[str, Any]:
    return {"type": "PYTHON", "params": params}


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_script_is_inlined_as_it_is_and_runs_by_its_text_x68(
    folder: Path, tmp_path: Path
) -> None:
    (params,) = params_of(folder, python(file="clean.py"), inlines=True)
    assert params == {"file": "clean.py", "fileText": _SCRIPT}
    # The stored text takes precedence over the file, which may have changed or be missing.
    (folder / "clean.py").unlink()
    assert params_of(folder, python(**params), inlines=True) == [params]
    assert launched(tmp_path, "PYTHON", params) == ""


def test_every_file_that_is_not_inlined_is_tied_by_its_digest_x68(folder: Path) -> None:
    script, jar, words = folder / "clean.py", folder / "job.jar", folder.parent / "resources"
    found = params_of(
        folder,
        python(file="clean.py", resourceList=[{"res": "words.txt"}], digests={"/x": "stale"}),
        {
            "type": "SPARK",
            "params": {
                "programType": "SCALA",
                "mainClass": "a.B",
                "mainJar": {"res": "job.jar"},
                "jars": [str(jar)],
                "files": f"{script}#alias",
            },
        },
    )
    assert found[0]["digests"] == {
        str(script): sha(script),
        "words.txt": sha(words / "words.txt"),
    }
    assert found[1]["digests"] == {str(jar): sha(jar), str(script): sha(script)}


def test_another_content_of_a_file_is_another_definition(folder: Path) -> None:
    before = params_of(folder, python(file="clean.py"))
    (folder / "clean.py").write_text("print('second')\n")
    assert params_of(folder, python(file="clean.py")) != before


def test_an_attempt_whose_file_has_changed_fails_with_the_reason_and_the_cure_x68(
    folder: Path, tmp_path: Path
) -> None:
    script, jar = folder / "clean.py", folder / "job.jar"
    (params,) = params_of(folder, python(file="clean.py", resourceList=[{"res": "job.jar"}]))
    assert launched(tmp_path / "good", "PYTHON", params) == ""
    for path in (jar, script):
        path.write_bytes(b"other")
        reason = launched(tmp_path / path.stem, "PYTHON", params)
        assert f"{path} has changed since the definition was imported" in reason
        assert "import the definition again" in reason
        path.write_bytes(b"jar" if path is jar else _SCRIPT.encode())


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 1_000_001])
def test_what_is_no_text_or_too_long_is_not_inlined(folder: Path, content: bytes) -> None:
    (folder / "clean.py").write_bytes(content)
    with pytest.raises(InvalidFilesError, match="inlined"):
        params_of(folder, python(file="clean.py"), inlines=True)


def told_of_a_request(folder: Path, *tasks: dict[str, Any]) -> Any:
    try:
        (found,) = read_content(
            a_file(folder, *tasks).read_bytes(), resources=folder.parent / "resources"
        )
    except InvalidFilesError as error:
        return [each.text for each in error.found]
    return found.document["tasks"]


def test_a_request_is_answered_the_same_for_files_that_are_there_and_for_others_x68(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    resources = folder.parent / "resources"
    pairs = [
        (str(folder / "clean.py"), str(folder / "gone.py.")),
        ("clean.py", "gone0.py"),
        ("/etc/passwd", "/etc/passwx"),
        ("/etc", "/etx"),
        ("../definitions/clean.py", "../definitions/gone0.py"),
    ]
    for there, missing in pairs:
        for key in ("file", "resourceList", "mainJar"):
            answers = []
            for name in (there, missing):
                value = [{"res": name}] if key == "resourceList" else name
                params = {key: value} if key == "file" else {"rawScript": "1", key: value}
                kind = "SPARK" if key == "mainJar" else "PYTHON"
                told = told_of_a_request(folder, {"type": kind, "params": params})
                answers.append(json.dumps(told).replace(name, "NAME"))
            assert answers[0] == answers[1], (key, there)
    there, missing = (
        told_of_a_request(folder, python(rawScript="1", resourceList=[{"res": name}]))
        for name in ("words.txt", "wordx.txt")
    )
    assert json.dumps(there).replace("words", "wordx") == json.dumps(missing)
    assert (resources / "words.txt").is_file()
    (mistake,) = told_of_a_request(folder, python(file="clean.py"))
    assert "is a relative path, and the definition is in no folder here" in mistake

"""Converts files of pydolphinscheduler into definition files in YAML, without a cluster.

A Python file runs as a program in a separate process, and a YAML file is read there by the
package's own reader. Both submit to a gateway that records, in the place of DolphinScheduler's. The
process finds the gateway by its environment, with a random token.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Final

from common.clock import SystemClock
from common.errors import InvalidDefinitionError, NotAllowedError, NotFoundError
from common.model.task_type import DIGESTS
from common.ports import LOOPBACK
from common.py4j.responder import EntryPoint, Responder
from common.strict_yaml import yaml_text
from operations.definition_files import (
    DefinitionDocument,
    InvalidFilesError,
    read_definition_files,
)
from operations.errors import UsageError
from operations.findings import Finding
from operations.lint_keys import key_findings
from operations.python_gateway.methods import Caller
from operations.python_gateway.recorded import Recorded, RecordedGateway

_TOKEN_BYTES: Final = 32
_STANDARD_INPUT: Final = Path("-")
_LAST_LINES: Final = 12
_LONGEST_TEXT: Final = 4_000
_NO_PACKAGE: Final = (
    "import importlib.util as i, sys; sys.exit(0 if i.find_spec('pydolphinscheduler') else 3)"
)
_OF_YAML: Final = (
    "import sys; from pydolphinscheduler.core.yaml_workflow import create_workflow;"
    " create_workflow(sys.argv[1])"
)
_FOREIGN_KEYS: Final = ("code", "tenantId")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A definition as the text of a file; `name` is that of the file, `findings` what is lost."""

    definition: str
    name: str
    text: str
    tasks: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """True if it can run as it stands."""
        return not any(each.keeps_offline for each in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """All that a file submits: definitions, files of the resource centre, names of those run."""

    converted: tuple[Converted, ...]
    resources: Mapping[str, str]
    runs: tuple[str, ...]


def convert(file: Path, *, python: str, within: timedelta, resources: Path, to: Path) -> Conversion:
    """Run a file by the interpreter `python` and return what it submits.

    `NotAllowedError` if it fails, takes longer, or submits nothing. `resources` is the folder in
    which tasks find the files that they name. `to` is the folder of the definitions: paths of files
    on this computer are relative to it, so that the folder can be moved.
    """
    if not file.is_file():
        raise NotFoundError(f"there is no file {str(file)!r:.300}")
    python = _interpreter(python)
    gateway = RecordedGateway()
    caller = Caller(gateway)
    token = secrets.token_urlsafe(_TOKEN_BYTES)

    def enter(given: str, _address: str) -> EntryPoint | None:
        is_ours = secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())
        return caller if is_ours else None

    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.bind((LOOPBACK, 0))
    responder = Responder(taken, enter, clock=SystemClock())
    responder.start()
    try:
        with tempfile.TemporaryDirectory(prefix="orcaflow-convert-") as home:
            environment = {
                **os.environ,
                "PYDS_JAVA_GATEWAY_ADDRESS": LOOPBACK,
                "PYDS_JAVA_GATEWAY_PORT": str(taken.getsockname()[1]),
                "PYDS_JAVA_GATEWAY_AUTH_TOKEN": token,
                "PYDS_HOME": home,
            }
            _run(file, python, environment, within)
    finally:
        responder.stop()
    found = gateway.recorded()
    if not found:
        raise NotAllowedError(
            f"{file} ended well and submitted nothing: it has to call `submit()` or `run()` of its"
            " workflow"
        )
    return Conversion(
        converted=tuple(_converted(found, gateway, resources, to)),
        resources=gateway.resources,
        runs=tuple(dict.fromkeys(gateway.runs)),
    )


def save(conversion: Conversion, folder: Path, *, replace: bool) -> list[Path]:
    """Write the files into a folder, all or none; return those of the definitions.

    `NotAllowedError` for one that is there with another content, unless it is to be replaced.
    """
    files = {each.name: each.text for each in conversion.converted}
    wanted: dict[Path, bytes] = {}
    for name, text in {**conversion.resources, **files}.items():
        path = PurePosixPath(name.lstrip("/"))
        if ".." in path.parts or not path.parts or "\0" in name:
            raise UsageError("file", f"the resource {name!r:.200} leads out of its folder")
        wanted[folder / path] = text.encode("utf-8", "replace")
    try:
        for target, content in wanted.items():
            if not replace and target.exists() and target.read_bytes() != content:
                raise NotAllowedError(
                    f"{target} is there with another content: --replace, or another folder by --to"
                )
        for target, content in wanted.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except OSError as error:
        raise NotAllowedError(f"{error.filename} can't be written: {error.strerror}") from error
    return [folder / each.name for each in conversion.converted]


def _interpreter(python: str) -> str:
    """Return the path of an interpreter that has the package."""
    found = shutil.which(python)
    if found is None:
        raise UsageError("python", f"there is no program {python!r:.300}")
    python = os.path.abspath(found)  # noqa: PTH100  # A link of an environment stays a link.
    done = subprocess.run(
        [python, "-c", _NO_PACKAGE], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise NotAllowedError(
            f"pydolphinscheduler is not installed for {python}: install it there"
            f" ({python} -m pip install apache-dolphinscheduler), or name the interpreter that has"
            " it with --python"
        )
    return python


def _run(file: Path, python: str, environment: Mapping[str, str], within: timedelta) -> None:
    is_yaml = file.suffix.lower() in (".yaml", ".yml")
    process = subprocess.Popen(
        [python, *(("-c", _OF_YAML) if is_yaml else ()), str(file.absolute())],
        env=environment,
        cwd=file.absolute().parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=within.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise NotAllowedError(
            f"{file} did not end within {within.total_seconds():.0f} s; see --timeout"
        ) from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        said = output.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
        text = "\n".join(said)[-_LONGEST_TEXT:]
        raise NotAllowedError(f"{file} failed with exit code {process.returncode}:\n{text}")


def _converted(
    found: list[Recorded], gateway: RecordedGateway, resources: Path, to: Path
) -> Iterator[Converted]:
    try:
        documents = read_definition_files(
            [_STANDARD_INPUT],
            resources=resources,
            given=gateway.names(),
            strict=False,
            standard_input=json.dumps([each.entry for each in found]).encode(),
        )
    except InvalidFilesError as error:
        # It was no file: its places mean nothing to whoever wrote the program.
        texts = (f"{each.place.definition!r:.80}: {each.text}" for each in error.found)
        raise InvalidDefinitionError(tuple(texts)) from error
    taken: set[str] = set()
    for each, document in zip(found, documents, strict=True):
        yield Converted(
            definition=document.name,
            name=_file_name(document.name, taken),
            text=yaml_text(_file(each, document, to)),
            tasks=document.task_count,
            findings=tuple(_reported(document.findings, gateway.resources)),
            notes=each.notes,
        )


def _file(recorded: Recorded, document: DefinitionDocument, to: Path) -> dict[str, Any]:
    """Return a definition in Orcaflow's own form, without the codes of the notes."""
    inner = {
        key: value
        for key, value in document.document.items()
        if key not in _FOREIGN_KEYS and value not in (0, [])
    }
    inner["tasks"] = [
        {key: value for key, value in node.items() if key not in _FOREIGN_KEYS}
        for node in inner["tasks"]
    ]
    inner["tasks"] = [_portable(node, to) for node in inner["tasks"]]
    _drop_unread(inner)
    made: dict[str, Any] = {"name": document.name}
    if document.description:
        made["description"] = document.description
    if document.execution_type:
        made["executionType"] = document.execution_type.name
    rule = document.date_rule or document.former_date_rule
    if rule is not None:
        made["complementDateRule"] = rule.value
    if recorded.schedule is not None:
        made["schedules"] = [recorded.schedule]
    return made | {"processDefinitionJson": inner}


def _portable(node: Mapping[str, Any], to: Path) -> dict[str, Any]:
    """Return a node with relative paths of the files that were found on this computer.

    Their digests are left out: an import finds the files again.
    """
    params = node.get("params")
    digests = params.get(DIGESTS.name) if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(digests, dict):
        return dict(node)

    def relative(value: Any) -> Any:
        if isinstance(value, str):
            is_found = value in digests and value.startswith("/")
            return os.path.relpath(value, to.absolute()) if is_found else value
        if isinstance(value, list):
            return [relative(each) for each in value]
        if isinstance(value, dict):
            return {key: relative(each) for key, each in value.items()}
        return value

    own = {key: relative(each) for key, each in params.items() if key != DIGESTS.name}
    return {**node, "params": own}


def _drop_unread(inner: Mapping[str, Any]) -> None:
    """Take out what no task here reads: a mistake in a file of Orcaflow's own."""
    unread = {(each.node, each.key) for each in key_findings(inner, strict=True)}
    for node in inner["tasks"]:
        for place, holder in (("", node), ("params.", node.get("params"))):
            for key in list(holder) if isinstance(holder, dict) else ():
                if (node["name"], f"{place}{key}") in unread:
                    del holder[key]


def _reported(findings: tuple[Finding, ...], resources: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings but those about files that the workflow itself brings."""
    for each in findings:
        is_brought = any(repr(name) in each.problem for name in resources)
        if not (is_brought and each.problem.startswith("there is no file")):
            yield each


def _file_name(definition: str, taken: set[str]) -> str:
    """Return a name of a file that no other definition has."""
    plain = "".join(each if each.isalnum() or each in "-_." else "-" for each in definition)
    name, number = plain.strip(".-")[:80] or "definition", 1
    while name in taken:
        number += 1
        name = f"{plain.strip('.-')[:80]}-{number}"
    taken.add(name)
    return f"{name}.yaml"

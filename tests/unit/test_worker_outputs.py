"""Outputs of an attempt: lines of its log, the file, the limits, and untrusted content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from common.params import DataType
from worker.processes.outputs import MAX_BYTES, MAX_VALUES, Declared, OutputError, OutputReader


class Attempt:
    """A log and a file that a test fills."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "1.log"
        self.file = directory / "output.jsonl"
        self.log.touch()
        self._open: list[int] = []

    def read(
        self, *names: str, log_from: int | None = 0, defaults: Mapping[str, str] | None = None
    ) -> OutputReader:
        types = dict.fromkeys(names or ("a", "b"), DataType.VARCHAR)
        declared = Declared(
            types=types, file=str(self.file), log_from=log_from, defaults=defaults or {}
        )
        # As it comes back from a record.
        declared = Declared.from_json(json.loads(json.dumps(declared.to_json())))
        log = os.open(self.log, os.O_RDONLY)
        self._open.append(log)
        reader = OutputReader(declared, log)
        reader.read_all()
        return reader

    def values(self, *names: str, log_from: int | None = 0) -> dict[str, str]:
        pool = self.read(*names, log_from=log_from).var_pool()
        return {each["prop"]: each["value"] for each in json.loads(pool or "[]")}

    def close(self) -> None:
        for log in self._open:
            os.close(log)


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    attempt = Attempt(tmp_path)
    yield attempt
    attempt.close()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("${setValue(a=1)}\n", {"a": "1"}),
        ("#{setValue(a=1)}", {"a": "1"}),
        ("12:00 INFO ${setValue(a=1)} #{setValue(b=x=y)} end\n", {"a": "1", "b": "x=y"}),
        ("${setValue(a=1)}\n${setValue(a=2)}\n", {"a": "2"}),
        ("${setValue(a=)}\n", {"a": ""}),
        ("${setValue( a =f(x) {y})}\n", {"a": "f(x) {y}"}),
        ("${setValue(a=ü日)}\n", {"a": "ü日"}),
        ("{setValue(a=1)}\n$ {setValue(a=1)}\n", {}),
        ("${setValue(a)}\n${setValue(=1)}\n", {}),
        ("${setValue(a=1\n)}\n${setValue(b=2)}", {"b": "2"}),
        ("${setValue(a=1", {}),
        ("${setValue(c=1)}\n", {}),
    ],
)
def test_what_is_printed_is_put_out(attempt: Attempt, text: str, values: dict[str, str]) -> None:
    attempt.log.write_text(text, encoding="utf-8")
    assert attempt.values() == values


def test_an_output_that_is_not_put_out_has_its_declared_value(attempt: Attempt) -> None:
    attempt.log.write_text("${setValue(a=1)}\n")
    reader = attempt.read(defaults={"a": "0", "b": "none"})
    pool = json.loads(reader.var_pool() or "")
    assert {each["prop"]: each["value"] for each in pool} == {"a": "1", "b": "none"}
    assert reader.summary() == "puts out a; leaves the declared value to b"


def test_the_header_puts_out_nothing(attempt: Attempt) -> None:
    header = "[orcaflow] parameters a=${setValue(a=1)}\n"
    attempt.log.write_text(header + "${setValue(b=2)}\n")
    assert attempt.values(log_from=len(header)) == {"b": "2"}


def test_a_log_that_is_not_to_be_read_puts_out_nothing(attempt: Attempt) -> None:
    attempt.log.write_text("${setValue(a=1)}\n")
    assert attempt.values(log_from=None) == {}


def test_t85_bytes_that_are_no_text_are_read_over(attempt: Attempt) -> None:
    attempt.log.write_bytes(b"\xff\xfe${setValue(a=\xff)}\0\n")
    assert attempt.values() == {"a": "\ufffd"}


@pytest.mark.parametrize("shift", range(0, 24, 3))
def test_a_value_may_lie_across_the_steps_of_reading(attempt: Attempt, shift: int) -> None:
    line = b"${setValue(a=across)}"
    step = 1024 * 1024
    attempt.log.write_bytes(b"x" * (step - shift) + line + b"y" * step + b"\n" + line[:-3] + b"\n")
    assert attempt.values() == {"a": "across"}


def test_the_file_holds_json_objects_one_a_line(attempt: Attempt) -> None:
    attempt.log.write_text("${setValue(a=log)}")
    attempt.file.write_text('{"a": "file"}\n\n{"b": 1.10, "c": 3}\n{"b": [1, "ü"], "c": null}')
    assert attempt.values("a", "b", "c") == {"a": "file", "b": '[1, "ü"]', "c": ""}


def test_numbers_stay_as_they_were_written(attempt: Attempt) -> None:
    attempt.file.write_text('{"a": 1.10, "b": 123456789012345678901234567890}')
    assert attempt.values() == {"a": "1.10", "b": "123456789012345678901234567890"}


@pytest.mark.parametrize(
    "line", ['{"a": }', "a=1", "[1]", '"a"', '{"a": NaN}', "[" * 100_000, "\xff", '{"a": 1']
)
def test_a_line_that_is_no_json_object_is_named(attempt: Attempt, line: str) -> None:
    attempt.file.write_bytes(b'{"a": 1}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(OutputError, match=r"ORCAFLOW_OUTPUT: .*output\.jsonl, line 2: "):
        attempt.values()


def test_what_is_not_declared_is_dropped_and_told(attempt: Attempt) -> None:
    attempt.log.write_text("${setValue(a=1)} ${setValue(z=1)} ${setValue(y=1)}\n")
    assert attempt.read().summary() == "puts out a; drops y, z: not declared as OUT parameters"


def test_a_million_outputs_are_too_many(attempt: Attempt) -> None:
    attempt.log.write_text("".join(f"${{setValue(v{n}=1)}}\n" for n in range(MAX_VALUES + 1)))
    with pytest.raises(OutputError, match="more than 1,000 parameters"):
        attempt.values()


def test_one_value_put_out_a_million_times_is_one_value(attempt: Attempt) -> None:
    attempt.log.write_text("${setValue(a=1)}\n" * 100_000)
    assert attempt.values() == {"a": "1"}


def test_all_values_together_may_have_64_kib(attempt: Attempt) -> None:
    half = "x" * (MAX_BYTES // 2 - 1)
    attempt.log.write_text(f"${{setValue(a={half})}}\n${{setValue(b={half})}}\n")
    assert len(attempt.values()["a"]) == len(half)
    attempt.log.write_text(f"${{setValue(a={half}x)}}\n${{setValue(b={half})}}\n")
    with pytest.raises(OutputError, match="65,536"):
        attempt.values()


@pytest.mark.parametrize("text", ["${setValue(a=" + "x" * 200_000, "${setValue(a=" * 20_000])
def test_a_value_without_an_end_is_too_long(attempt: Attempt, text: str) -> None:
    attempt.log.write_text(text)
    with pytest.raises(OutputError, match="longer than 65,536 bytes"):
        attempt.values()


def test_a_file_that_is_too_large_is_not_read(attempt: Attempt) -> None:
    attempt.file.write_bytes(b"\n" * (1024 * 1024 + 1))
    with pytest.raises(OutputError, match="1,048,577 bytes"):
        attempt.values()


def test_a_file_that_is_a_link_a_pipe_or_a_directory_is_not_read(attempt: Attempt) -> None:
    secret = attempt.file.with_name("secret")
    secret.write_text('{"a": "secret"}')
    attempt.file.symlink_to(secret)
    with pytest.raises(OutputError, match="can't be read"):
        attempt.values()
    attempt.file.unlink()
    os.mkfifo(attempt.file)
    with pytest.raises(OutputError, match="no ordinary file"):
        attempt.values()
    attempt.file.unlink()
    attempt.file.mkdir()
    with pytest.raises(OutputError, match="no ordinary file"):
        attempt.values()

"""Secrets in the logs of tasks are overwritten in place, wherever the borders of reading are."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from common.masking import MASK
from common.store.worker.ports import AttemptPaths
from tests.claims import a_claimed_task
from worker import log_masking, task_log
from worker.log_masking import LogMask, maskable
from worker.processes.log_cutting import LogCutter
from worker.task_log import Cut

SECRET = "hunter2-p@ss"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    """An empty log as the worker opens it."""
    file = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield file
    os.close(file)


def text(log: int) -> str:
    return os.pread(log, os.fstat(log).st_size, 0).decode()


def masked(log: int, written: str, *secrets: str, spares: bool = False) -> str:
    mask = LogMask(secrets or (SECRET,), spares_outputs=spares)
    os.write(log, written.encode())
    mask.mask(log)
    assert not mask.left_bytes(log)
    return text(log)


def test_a_secret_is_masked_in_every_spelling_and_nothing_moves(log: int) -> None:
    found = masked(log, f"a {SECRET} b hunter2-p%40ss c aHVudGVyMi1wQHNz d\n")
    assert found == f"a {'*' * 12} b {'*' * 14} c {'*' * 16} d\n"


def test_a_secret_with_quotation_marks_is_masked_as_json_spells_it(log: int) -> None:
    assert masked(log, '{"x": "a\\"b\\u00e9"} a"bé\n', 'a"bé') == '{"x": "**********"} *****\n'


def test_overlapping_secrets_are_masked_as_one(log: int) -> None:
    assert masked(log, "abcdefgh abcd cdef", "abcdef", "cdefgh", "abcd") == "******** **** cdef"


def test_very_short_values_stay_and_the_size_of_all_is_bounded() -> None:
    assert maskable(["abc", "abcd", "abcd", ""]) == ("abcd",)
    several = maskable(str(number).ljust(30_000, "x") for number in range(100))
    assert len(several) == 3
    assert {len(each) for each in several} == {16 * 1024}


def test_a_secret_across_the_borders_of_reading_is_masked_whatever_the_sizes(
    log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_masking, "_STEP_BYTES", 7)
    draw = random.Random(11)
    mask = LogMask((SECRET, "tail"), spares_outputs=False)
    whole = ""
    for _ in range(300):
        piece = draw.choice((SECRET, "tail", "x", "hunter2", "\n", "ta", "il", SECRET[:5]))
        at = draw.randrange(len(piece) + 1)
        # As a task would write it, in two writes with a look between them.
        for part in (piece[:at], piece[at:]):
            os.write(log, part.encode())
            mask.mask(log)
        whole += piece
    assert SECRET not in text(log)
    assert "tail" not in text(log)
    assert len(text(log)) == len(whole)
    # What is no part of a secret is as it was.
    kept = whole.replace(SECRET, "*" * len(SECRET)).replace("tail", "****")
    assert text(log) == kept


def test_a_value_that_is_put_out_is_spared_until_the_outputs_are_read(log: int) -> None:
    line = f"${{setValue(copy={SECRET})}}"
    mask = LogMask((SECRET,), spares_outputs=True)
    os.write(log, f"x {SECRET}\n{line} {SECRET}\n".encode())
    mask.mask(log)
    assert text(log) == f"x {'*' * 12}\n{line} {SECRET}\n"
    mask.finish(log)
    assert SECRET not in text(log)
    assert text(log).startswith(f"x {'*' * 12}\n${{setValue(copy=*")


def test_a_value_that_is_put_out_is_spared_across_borders_too(
    log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_masking, "_STEP_BYTES", 5)
    mask = LogMask((SECRET,), spares_outputs=True)
    for part in ("a\n#{setVa", "lue(copy=hun", f"{SECRET[3:]})}}\n{SECRET}\n"):
        os.write(log, part.encode())
        mask.mask(log)
    assert text(log) == f"a\n#{{setValue(copy={SECRET})}}\n{'*' * 12}\n"
    mask.finish(log)
    assert SECRET not in text(log)


def test_a_cut_leaves_no_part_of_a_secret(log: int) -> None:
    # One line without an end, so that the cut is made wherever the limit is.
    for lead in range(len(SECRET) + 1):
        os.ftruncate(log, 0)
        mask = LogMask((SECRET,), spares_outputs=False)
        cut: Cut | None = None
        for turn in range(4):
            os.write(log, ("." * (lead if turn == 0 else 0) + SECRET * 1_000).encode())
            cut = mask.cut(log, limit_bytes=10_000, before=cut)
            assert os.fstat(log).st_size < 10_000
        kept = text(log).replace(task_log._PREFIX, "")
        assert "hunter" not in kept
        assert "p@ss" not in kept
        assert cut is not None
        assert not mask.left_bytes(log)


def test_a_log_that_its_task_has_emptied_is_masked_from_its_begin(log: int) -> None:
    mask = LogMask((SECRET,), spares_outputs=True)
    os.write(log, b"x" * 100)
    mask.mask(log)
    os.ftruncate(log, 0)
    os.write(log, SECRET.encode())
    assert mask.left_bytes(log)
    mask.mask(log)
    assert text(log) == "*" * 12


def test_a_log_that_has_its_header_alone_is_not_searched(log: int) -> None:
    header = b"a header\n"
    mask = LogMask((SECRET,), spares_outputs=False, begin=len(header))
    os.write(log, header)
    assert not mask.left_bytes(log)
    os.write(log, SECRET.encode())
    assert mask.left_bytes(log)
    mask.mask(log)
    assert text(log) == f"a header\n{'*' * 12}"


def test_a_secret_that_arrives_in_small_parts_is_masked(log: int) -> None:
    header = b"a header\n"
    mask = LogMask((SECRET,), spares_outputs=False, begin=len(header))
    os.write(log, header)
    for each in SECRET:
        os.write(log, each.encode())
        mask.mask(log)
        assert not mask.left_bytes(log)
    assert text(log) == f"a header\n{'*' * 12}"


def _note(ended: list[int], number: int, _: Cut | None) -> None:
    ended.append(number)


def test_x94_a_small_log_does_not_wait_until_large_ones_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_masking, "_STEP_BYTES", 100)
    cutter = LogCutter(limit_bytes=1_000_000)
    ended: list[int] = []
    logs = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in "abc"]
    for number, file in enumerate(logs):
        os.write(file, SECRET.encode() * (3 if number == 2 else 100))
        cutter.cut(
            number,
            file,
            before=None,
            mask=LogMask((SECRET,), spares_outputs=False),
            done=partial(_note, ended, number),
        )
    cutter.run_once()
    assert ended == [2, 0, 1]
    assert not [each for each in logs if set(text(each)) != {"*"}]
    for file in logs:
        os.close(file)


def test_x94_thousands_of_secrets_are_not_prepared_on_the_supervisor_s_thread(log: int) -> None:
    mask = LogMask((f"secret-{number}" for number in range(1_000)), spares_outputs=False)
    assert not mask.is_quick
    os.write(log, b"secret-17 secret-x\n")
    assert (mask.settled, mask.is_quick) == (0, False)
    mask.mask(log)
    assert (text(log), mask.is_quick) == ("********* secret-x\n", True)
    assert LogMask(("secret-17",), spares_outputs=False).is_quick


def test_x94_thousands_of_parameters_are_shown_without_thousands_of_secrets() -> None:
    secrets = {f"token_{number}": f"{number:05d}-hidden" for number in range(1_000)}
    repeated = {f"p{number}": f"is {number:05d}-hidden\t." for number in range(1_000)}
    paths = AttemptPaths(execute_path="/nowhere", log_path="/nowhere/log")
    shown = task_log.header(a_claimed_task(paths), (), {**secrets, **repeated})
    assert "-hidden" not in shown
    assert f"p7=is {MASK}\\t., p8=" in shown

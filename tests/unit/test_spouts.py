"""The spouts of Orcaflow's own: places, and records that are the same whenever they are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.model.streams.consumer import ConsumerPropertyError
from common.topology.components import Spout
from orcaflow.spouts import FileSpout, KafkaSpout, ListSpout, RateSpout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lines"
    made.mkdir()
    return made


def append(file: Path, content: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(content)


def read_all(spout: Spout, begun: Mapping[str, int]) -> dict[str, list[Any]]:
    """Return all behind these places; each piece is read twice, and is the same."""
    found = {}
    for partition, end in spout.ends(begun).items():
        piece = partition, begun.get(partition, 0), end
        found[partition] = firsts(spout.read(*piece))
        assert firsts(spout.read(*piece)) == found[partition]
    return found


def firsts(read: Iterable[Any]) -> list[Any]:
    """Return the values of the first field, of records and of whole tables."""
    found: list[Any] = []
    for each in read:
        found += [each[0]] if isinstance(each, tuple) else each.column(0).to_pylist()
    return found


def test_a_list_is_dealt_out_to_its_partitions_and_read_from_any_place() -> None:
    spout = ListSpout([(number,) for number in range(7)], ("n long",), partitions=3)
    assert spout.ends({}) == {"0": 3, "1": 2, "2": 2}
    assert read_all(spout, {}) == {"0": [0, 3, 6], "1": [1, 4], "2": [2, 5]}
    assert read_all(spout, {"0": 2, "1": 2, "2": 1}) == {"0": [6], "1": [], "2": [5]}


def test_all_partitions_of_a_rate_have_its_numbers_once_up_to_the_total() -> None:
    spout = RateSpout(partitions=3, total=8)
    assert spout.ends({}) == {"0": 3, "1": 3, "2": 2}
    assert read_all(spout, {}) == {"0": [0, 3, 6], "1": [1, 4, 7], "2": [2, 5]}
    # The last of them have nothing.
    assert RateSpout(partitions=3, total=1).ends({}) == {"0": 1, "1": 0, "2": 0}


def test_a_rate_without_a_limit_has_always_more() -> None:
    spout = RateSpout(partitions=2)
    assert all(spout.ends({"0": 10**9})[each] > 10**9 for each in ("0", "1"))


def test_a_rate_goes_on_in_its_measure_from_where_it_was_begun() -> None:
    now = 10.0
    spout = RateSpout(6, partitions=2, clock=lambda: now)
    begun = {"0": 100, "1": 50}
    assert spout.ends(begun) == begun
    now = 12.0
    assert spout.ends(begun) == {"0": 106, "1": 56}
    # The measure is that of the clock, however far it was read meanwhile.
    now = 13.0
    assert spout.ends({"0": 103, "1": 56}) == {"0": 109, "1": 59}
    spout.close()
    now = 99.0
    assert spout.ends({"0": 103, "1": 56}) == {"0": 103, "1": 56}


@pytest.mark.parametrize(
    "make",
    [
        lambda: ListSpout([], ("n long",), partitions=0),
        lambda: RateSpout(partitions=0),
        lambda: RateSpout(0),
        lambda: RateSpout(total=-1),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_where_it_is_written(make: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()


def test_half_a_line_is_emitted_once_it_is_whole(folder: Path) -> None:
    file, spout = folder / "a", FileSpout(str(folder))
    append(file, b"one\ntw")
    assert spout.ends({}) == {"a": 1}
    assert read_all(spout, {}) == {"a": ["one"]}
    append(file, b"o")
    assert spout.ends({"a": 1}) == {"a": 1}
    append(file, b"\n\nfour\n")
    assert read_all(spout, {"a": 1}) == {"a": ["two", "", "four"]}
    assert list(spout.read("a", 0, 1)) == [("one", "a")]


def test_a_line_keeps_all_but_its_end_and_other_bytes_than_utf_8_are_marked(folder: Path) -> None:
    append(folder / "a", b"dos\r\n two\r\r\n\xc3\xa9\n\xff\xc3\nnul\0\x85\x0b\x0c\n")
    assert read_all(FileSpout(str(folder)), {})["a"] == [
        "dos",
        " two\r",
        "é",
        "\N{REPLACEMENT CHARACTER}" * 2,
        "nul\0\N{REPLACEMENT CHARACTER}\x0b\x0c",
    ]


def test_a_line_may_be_longer_than_a_block(folder: Path) -> None:
    long = b"x" * (5 << 20)
    append(folder / "a", b"short\n" + long)
    spout = FileSpout(str(folder))
    assert spout.ends({}) == {"a": 1}
    append(folder / "a", b"y\nlast\n")
    found = read_all(spout, {"a": 1})["a"]
    assert [len(line) for line in found] == [len(long) + 1, 4]


def test_files_are_added_in_folders_that_the_pattern_names_and_hidden_ones_are_not(
    folder: Path,
) -> None:
    spout = FileSpout(str(folder), "**/*.log")
    append(folder / "a.log", b"1\n")
    append(folder / "a.txt", b"no\n")
    assert read_all(spout, {}) == {"a.log": ["1"]}
    (folder / "b").mkdir()
    append(folder / "b" / "a.log", b"2\n3\n")
    # It will be renamed, once it is whole.
    append(folder / ".c.log", b"half")
    (folder / "b.log").mkdir()
    assert read_all(spout, {"a.log": 1}) == {"a.log": [], "b/a.log": ["2", "3"]}
    assert list(spout.read("b/a.log", 0, 1)) == [("2", "b/a.log")]


def test_another_process_reads_on_in_the_middle(folder: Path) -> None:
    append(folder / "a", b"".join(b"%d\n" % number for number in range(100)))
    FileSpout(str(folder)).ends({})
    reading = FileSpout(str(folder))
    assert [line for line, _ in reading.read("a", 40, 43)] == ["40", "41", "42"]
    assert [line for line, _ in reading.read("a", 43, 44)] == ["43"]
    assert [line for line, _ in reading.read("a", 7, 8)] == ["7"]
    assert reading.ends({"a": 44}) == {"a": 100}


def test_a_file_that_has_lost_lines_is_a_trouble_and_nothing_is_made_up(folder: Path) -> None:
    file, spout = folder / "a", FileSpout(str(folder))
    append(file, b"one\ntwo\nthree\n")
    assert spout.ends({}) == {"a": 3}
    file.write_bytes(b"new\n")
    with pytest.raises(OSError, match=r"a has 1 lines, and 3 of it have been read"):
        spout.ends({"a": 3})
    with pytest.raises(OSError, match=r"line 2 of .*a is gone"):
        list(spout.read("a", 0, 3))
    # Lines that nobody has read yet may be others.
    assert read_all(spout, {}) == {"a": ["new"]}
    file.unlink()
    assert spout.ends({"a": 1}) == {}


def test_what_is_no_folder_or_has_no_name_in_utf_8_is_a_trouble(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        FileSpout(str(folder / "nowhere")).ends({})
    append(Path(os.fsdecode(os.fsencode(folder) + b"/\xff")), b"1\n")
    with pytest.raises(OSError, match="rename it"):
        FileSpout(str(folder)).ends({})


def test_a_property_that_is_no_text_is_refused_and_not_shown() -> None:
    refused: tuple[Any, ...] = (
        {"type": "environment", "variable": "ORCAFLOW_DATABASE_PASSWORD"},
        {"type": "environment", "password": "hunter2"},
        [7],
    )
    for value in refused:
        with pytest.raises(ConsumerPropertyError, match=r"properties\.sasl\.password must") as told:
            KafkaSpout("t", "broker:9092", properties={"sasl.password": value})
        assert "hunter2" not in str(told.value)
    with pytest.raises(ValueError, match="start must be"):
        KafkaSpout("t", "broker:9092", start="now")  # type: ignore[arg-type]


def test_a_variable_that_the_task_lacks_is_named() -> None:
    secret = {"type": "environment", "variable": "NOBODY_HAS_SET_THIS"}
    spout = KafkaSpout("t", "broker:9092", properties={"sasl.password": secret})
    with pytest.raises(ConsumerPropertyError, match=r"NOBODY_HAS_SET_THIS, which this task"):
        spout.ends({})

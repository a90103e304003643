"""The output of the command line can't steer a terminal, and is aligned."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from operations.texts import duration
from orcaflow.cli.output import Format, escaped, escaped_log, print_json, print_rows, table


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b]8;;http://evil\x07b", "a\\x1b]8;;http://evil\\x07b"),
        ("safe\rEVIL", "safe\\rEVIL"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
        ("a\nb", "a\\nb"),
        ("\x9b2J", "\\x9b2J"),
        ("\x00", "\\x00"),
        ("\ud800", "\\ud800"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_a_sign_that_steers_a_terminal_is_made_visible(hostile: str, shown: str) -> None:
    assert escaped(hostile) == shown


def test_writing_of_all_peoples_is_left_alone() -> None:
    text = "日报 – tägliche\u00a0Flüge ✈ \N{MAN}\u200d\N{WOMAN}"
    assert escaped(text) == text


def test_a_log_keeps_its_colours_and_nothing_else() -> None:
    shown = escaped_log("\x1b[31mred\x1b[0m\x1b[2J\rx\n")
    assert shown == "\x1b[31mred\x1b[0m\\x1b[2J\\rx\x1b[0m\n"


def test_a_colour_of_a_log_ends_with_its_line() -> None:
    assert escaped_log("\x1b[31mred\nplain\n") == "\x1b[31mred\x1b[0m\nplain\n"


def test_a_table_for_a_pipe_has_aligned_columns_and_cuts_nothing_off() -> None:
    rows: list[dict[str, object]] = [{"id": 1, "name": "x" * 200}, {"id": 100, "name": None}]
    lines = table(rows, ("id", "name")).splitlines()
    assert lines[0] == "ID   NAME"
    assert lines[1] == "1    " + "x" * 200
    assert lines[2] == "100  -"


def test_json_goes_alone_to_standard_output_and_no_name_in_it_steers_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"name": "\x1b[2J日", "at": datetime(2026, 1, 2, tzinfo=UTC)})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"name": "\x1b[2J日", "at": "2026-01-02T00:00:00Z"}


def test_no_rows_are_an_empty_list_in_json_and_a_sentence_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows([], form=Format.JSON, columns=("id",), none="there is nothing")
    assert json.loads(capsys.readouterr().out) == []
    print_rows([], form=Format.TABLE, columns=("id",), none="there is nothing")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "there is nothing\n")


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=1.26), "1.3s"),
        (timedelta(seconds=61), "1m01s"),
        (timedelta(hours=2, seconds=5), "2h00m05s"),
        (timedelta(seconds=-1), "0.0s"),
    ],
)
def test_a_span_is_short_to_read(span: timedelta, text: str) -> None:
    assert duration(span) == text

"""Parameters of requests in DolphinScheduler's dialects, read from their bodies."""

from __future__ import annotations

import email.parser

import pytest

from api.dolphinscheduler.call import read_parameters
from operations.errors import UsageError

KIND = "multipart/form-data; boundary=b"


def a_part(name: str, content: str) -> str:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{content}\r\n'


def test_the_parts_of_a_form_are_parameters_and_files() -> None:
    file = a_part("file", "-- a comment\n{}").replace('"file"', '"file"; filename="x.json"', 1)
    body = f"{a_part('name', 'nightly')}{file}--b--\r\n"
    assert read_parameters("", body.encode(), KIND) == (
        {"name": "nightly"},
        {"file": b"-- a comment\n{}"},
    )


@pytest.mark.parametrize(
    "body",
    [
        "".join(a_part(f"p{number}", "1") for number in range(4000)) + "--b--\r\n",
        "--b\rContent-Type: multipart/mixed; boundary=c\r\r"
        + "--c\r\rx\r" * 4000
        + "--c--\r--b--\r",
    ],
    ids=["parts", "nested parts"],
)
def test_a_form_of_very_many_parts_is_refused_before_it_is_parsed(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(email.parser.BytesParser, "parsebytes")
    with pytest.raises(UsageError, match="more than 1000 parameters"):
        read_parameters("", body.encode(), KIND)

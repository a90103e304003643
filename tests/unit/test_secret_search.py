"""Secrets are found anywhere in a log, in the forms in which programs print them."""

from __future__ import annotations

import html
import os
import random
import shlex
import tracemalloc
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from common.masking import encodings, quotations
from worker import log_masking, secret_index, secret_search
from worker.log_masking import LogMask
from worker.secret_index import SecretIndex
from worker.secret_search import SecretSearch, Span

SECRETS = ("hunter2-p@ss", 'it\'s a "secret" & more', "correct horse battery", "pä$$wörd+/=9")


@pytest.fixture(params=[0, 1_000], ids=["by index", "one by one"])
def most_single(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search with an index, and without one."""
    monkeypatch.setattr(secret_search, "_MOST_SINGLE", request.param)


def masked(path: Path, written: bytes, *secrets: str, step: int | None = None) -> bytes:
    """Write a log, mask it and return it; with `step`, write and mask pieces of this size."""
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC)
    mask = LogMask(secrets, spares_outputs=False)
    for at in range(0, len(written), step or len(written)):
        os.write(log, written[at : at + (step or len(written))])
        mask.mask(log)
    found = os.pread(log, os.fstat(log).st_size, 0)
    os.close(log)
    assert len(found) == len(written)
    return found


@pytest.mark.usefixtures("most_single")
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_as_programs_print_it(tmp_path: Path, secret: str) -> None:
    raw = secret.encode()
    printed = {
        "echo | base64": b64encode(raw + b"\n"),
        "curl -v -u": b64encode(b"user:" + raw),
        "base64 of a longer text": b64encode(b"a=1&password=" + raw + b"&b=2"),
        "base64 at 76 columns": encodebytes(b"x" * 50 + raw + b"y" * 50),
        "base64 with CRLF": encodebytes(b"x" * 50 + raw + b"y" * 50).replace(b"\n", b"\r\n"),
        "base64 for URLs": urlsafe_b64encode(b"ab" + raw),
        "a URL": quote(secret, safe="").encode(),
        "a form": quote_plus(secret).encode(),
        "set -x": shlex.quote(secret).encode(),
        "HTML": html.escape(secret).encode(),
        "repr": repr(secret).encode(),
        "env -0": b"A=1\0PASSWORD=" + raw + b"\0",
    }
    for program, text in printed.items():
        found = masked(tmp_path / "log", b"> " + text + b" <\n", secret)
        forms = [each.encode() for each in (*quotations(secret), *encodings(secret))]
        joined = found.replace(b"\r", b"").replace(b"\n", b"")
        assert not any(form in joined for form in forms), (program, found)
        assert b"*" * min(8, len(secret)) in joined, (program, found)


@pytest.mark.parametrize("lead", range(6))
def test_base_64_is_masked_with_the_characters_that_share_bits(tmp_path: Path, lead: int) -> None:
    text = b64encode(b"x" * lead + b"hunter2-p@ss" + b"\n")
    found = masked(tmp_path / "log", b"Basic " + text + b"\n", "hunter2-p@ss")
    before, _, rest = found.removeprefix(b"Basic ").partition(b"*")
    behind = rest.rpartition(b"*")[2].rstrip(b"\n")
    # Only characters of the bytes before the secret and of the line end after it may remain.
    assert (text.startswith(before), text.endswith(behind)) == (True, True)
    assert len(before) <= 8 * lead // 6
    assert len(behind) <= 4


def test_a_secret_in_base_64_is_masked_whatever_the_sizes_of_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    secret = "hunter2-p@ss"
    for _ in range(60):
        monkeypatch.setattr(log_masking, "_STEP_BYTES", draw.randrange(3, 90))
        lead = bytes(draw.choices(b"abc\n", k=draw.randrange(90)))
        written = b"start\n" + encodebytes(lead + secret.encode() + b"\n") + b"end\n"
        found = masked(tmp_path / "log", written, secret, step=draw.randrange(1, 120))
        joined = found.replace(b"\n", b"")
        assert not any(core.encode() in joined for core in encodings(secret))
        assert (found.count(b"\n"), found[:6], found[-4:]) == (
            written.count(b"\n"),
            b"start\n",
            b"end\n",
        )


@pytest.mark.usefixtures("most_single")
@pytest.mark.parametrize("letters", [b"abAB12@Q\n", b"ab\n"])
def test_the_search_finds_what_a_plain_search_finds(letters: bytes) -> None:
    draw = random.Random(3)
    for _ in range(300):
        needles = {bytes(draw.choices(letters[:-1], k=draw.randrange(4, 9))) for _ in range(6)}
        block = bytes(draw.choices(letters, k=400)) + b"".join(needles)
        wanted = {
            at
            for needle in needles
            for begin in range(len(block))
            if block.startswith(needle, begin)
            for at in range(begin, begin + len(needle))
        }
        search = SecretSearch(needles)
        for _ in range(2):
            spans = search.spans(block)
            assert {at for begin, end in spans for at in range(begin, end)} == wanted


def test_a_log_full_of_a_rare_byte_is_searched_for_whole_secrets(tmp_path: Path) -> None:
    secret = "hunter2-p@ss"
    written = b"@" * 200_000 + secret.encode() + b"@" * 100_000 + b64encode(secret.encode())
    found = masked(tmp_path / "log", written, secret)
    assert secret.encode() not in found
    assert found.endswith(b"@" + b"*" * 16)
    assert found.count(b"@") == 300_000


@pytest.mark.usefixtures("most_single")
@pytest.mark.parametrize("encoded", [False, True])
def test_x92_a_log_that_consists_of_a_secret_takes_little_memory(encoded: bool) -> None:
    """Each of these needles matches at nearly every byte, which gave 60 million places."""
    needles = [b"a" * size for size in range(4, 404)]
    search = SecretSearch(*((), needles) if encoded else (needles,))
    block = b"a" * 150_000
    tracemalloc.start()
    try:
        found = search.spans(block)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [(0, len(block))]
    assert most < 20_000_000


def test_the_index_finds_what_single_searches_find(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    for letters in (b"ab", b"abAB12@Q+/", b"ab", b"abcdefghQ") * 60:
        sets = [
            {bytes(draw.choices(letters, k=draw.randrange(1, 40))) for _ in range(12)}
            for _ in range(2)
        ]
        pieces = [*sets[0], *sets[1], letters, b"\n", b"\r\n", b"=", b"a" * 30]
        block = b"".join(draw.choices(pieces, k=40))
        block = b"".join(
            bytes((byte,)) + draw.choice((b"",) * 20 + (b"\n", b"\r\n")) for byte in block
        )
        found = []
        for most in (0, 1_000):
            monkeypatch.setattr(secret_search, "_MOST_SINGLE", most)
            spans = SecretSearch(*sets).spans(block)
            places = {at for begin, end in spans for at in range(begin, end)}
            found.append({at for at in places if block[at] not in b"\r\n"})
        assert found[0] == found[1], (sets, block)


def test_x94_many_secrets_cost_no_more_lookups_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(9)
    looked: list[int] = []
    look = secret_index.SecretIndex._found

    def found(index: SecretIndex, text: bytes, at: int) -> tuple[Sequence[int], int]:
        looked.append(at)
        return look(index, text, at)

    monkeypatch.setattr(secret_index.SecretIndex, "_found", found)
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n"
    secrets = [bytes(draw.choices(letters[:62], k=10)) for _ in range(10_000)]
    block = bytes(draw.choices(letters, k=100_000)) + secrets[17]
    search = SecretSearch(secrets)
    assert search.spans(block) == [(100_000, 100_010)]
    assert len(looked) < len(block) // 100


def test_x92_a_rare_byte_of_many_secrets_is_given_up_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def look(block: bytes, at: int, needle: secret_search._Needle) -> Iterator[Span]:
        looks.append(at)
        return find(block, at, needle)

    find = secret_search._at
    monkeypatch.setattr(secret_search, "_at", look)
    block = b"Zq00 " * 10_000 + b"Zq007"
    search = SecretSearch(b"Zq%03d" % number for number in range(60))
    assert search.spans(block) == [(len(block) - 5, len(block))]
    assert len(looks) < 2_000


@pytest.mark.usefixtures("most_single")
def test_a_block_may_start_within_a_needle() -> None:
    search = SecretSearch((), [b"aGVsQG8"])
    assert search.spans(b"GVsQG8 aGVsQG8 QG8") == [(7, 14)]
    assert search.spans(b"GVs aGVs\nQG8") == [(4, 12)]


def test_after_many_matches_the_rest_up_to_the_last_one_is_one_place() -> None:
    search = SecretSearch([b"root"])
    block = b"root;" * 30_000 + b"the end"
    found = search.spans(block)
    assert found[:2] == [(0, 4), (5, 9)]
    assert len(found) < 30_000
    assert found[-1][1] == block.rindex(b"root") + 4

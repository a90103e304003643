"""The languages of the console: the choice of one, and the catalogue, which has every text and no other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.pofile import read_po as read_by_babel

from api.console import catalogue, looks, names
from api.console.catalogue import ENGLISH, LANGUAGES, read_po, translations
from api.console.languages import preferred
from api.console.words import day_text, span_text
from api.problems import KINDS
from common.model.commands import CommandType
from common.model.complement_states import RunOrder
from common.model.schedules import FireOutcome
from common.model.states import ExecutionType, Priority, ProcessState, ReleaseState, TaskState
from tests.house.tree import ROOT

CHINESE = "zh-CN"
FILE = ROOT / "api" / "console" / "texts" / "zh_CN.po"
_PLACE = re.compile(r"%\(\w+\)s|</?\w+>|`[^`]+`|%%")
"""Parts that a translation has as its text has them: places of values, tags, words of commands."""
_ALIKE = {"Master", "Worker"}
"""The texts that Chinese takes over from English."""


@cache
def said() -> Catalog:
    with FILE.open("rb") as file:
        return read_by_babel(file, locale="zh_CN")


def texts_in_use() -> Iterator[tuple[str | None, str | tuple[str, ...]]]:
    """The texts of templates and of Python, as `pybabel extract` finds them, with their contexts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    mappings = settings["tool"]["babel"]["mappings"]
    options = {
        each["pattern"]: {
            key: text for key, text in each.items() if key not in ("method", "pattern")
        }
        for each in mappings
    }
    found = extract_from_dir(
        ROOT / "api",
        method_map=[(each["pattern"], each["method"]) for each in mappings],
        options_map=options,
        keywords=DEFAULT_KEYWORDS | {"marked": None, "said": None},
    )
    for _, _, text, _, context in found:
        yield context, text


def test_the_catalogue_has_every_text_of_the_console_and_no_other() -> None:
    used = set(texts_in_use())
    known = {(each.context, _key(each.id)) for each in said() if each.id}
    assert len(used) > 300
    # CONTRIBUTING.md has the two commands that bring it up to date.
    assert {"missing": used - known, "not used": known - used} == {
        "missing": set(),
        "not used": set(),
    }
    assert not said().obsolete


def _key(text: Any) -> Any:
    return tuple(text) if isinstance(text, list | tuple) else text


def test_every_text_is_translated_with_the_same_places_tags_and_commands() -> None:
    wrong = []
    for each in said():
        if not each.id:
            continue
        plural = each.id if isinstance(each.id, str) else each.id[-1]
        forms = [each.string] if isinstance(each.string, str) else list(each.string)
        wanted = sorted(_PLACE.findall(plural))
        has_places = all(sorted(_PLACE.findall(form)) == wanted for form in forms)
        is_english = forms[0] == plural and plural not in _ALIKE
        if each.fuzzy or not all(forms) or not has_places or is_english:
            wrong.append((each.id, each.string))
    assert wrong == []


def test_the_catalogue_is_read_as_babel_reads_it() -> None:
    texts = translations(CHINESE)
    for each in said():
        if not each.id:
            continue
        if isinstance(each.id, str):
            found = (
                texts.pgettext(each.context, each.id) if each.context else texts.gettext(each.id)
            )
            assert found == each.string
        else:
            assert {texts.ngettext(*each.id, count) for count in (0, 1, 2, 100)} == set(each.string)
    assert texts.gettext("not in it") == "not in it"
    assert translations(ENGLISH).gettext("queued") == "queued"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('msgid "a\\"b"\nmsgstr "c\\n"\n', {'a"b': "c\n"}),
        ('# note\nmsgid ""\n"a"\n"b"\nmsgstr ""\n"c"\n', {"ab": "c"}),
        ('msgctxt "x"\nmsgid "a"\nmsgstr "b"', {"x\x04a": "b"}),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[1] "d"', {"a\0b": "c\0d"}),
        ('msgid "a"\nmsgstr ""', {}),
        ('#, fuzzy, python-format\nmsgid "a"\nmsgstr "b"', {}),
        ('#~ msgid "a"\n#~ msgstr "b"', {}),
    ],
)
def test_an_entry_is_read_by_its_parts(text: str, found: dict[str, str]) -> None:
    assert read_po(text) == found


@pytest.mark.parametrize("text", ['msgid "a"\nmsgstr b', '"a"', 'msgid "a'])
def test_what_is_no_catalogue_is_refused(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        read_po(text)


def test_a_plural_has_the_form_of_its_number() -> None:
    header = "Content-Type: text/plain; charset=utf-8\nPlural-Forms: nplurals=2; plural=n != 1;\n"
    compiled = catalogue.compiled({"": header, "a\0b": "eins\0zwei"})
    texts = catalogue.gettext.GNUTranslations(BytesIO(compiled))
    assert [texts.ngettext("a", "b", count) for count in (1, 2)] == ["eins", "zwei"]


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("*", "en"),
        ("de-DE,fr;q=0.9", "en"),
        ("zh", "zh-CN"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"),
        ("zh-Hant-TW", "zh-CN"),
        ("en-GB,zh;q=0.9", "en"),
        ("en;q=0.5, zh-cn;q=0.7", "zh-CN"),
        ("de, zh;q=0.3", "zh-CN"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=0", "en"),
        ("zh;q=x, en;q=0.1", "en"),
        ("zh;q=nan", "en"),
        ("zh;q=2", "en"),
        ("zhuang, zh-", "zh-CN"),
        (",;=,;;q", "en"),
        ("de," * 60 + "zh", "en"),
    ],
)
def test_the_language_that_a_browser_likes_best_is_taken(accepted: str, language: str) -> None:
    assert preferred(accepted) == language


def test_every_language_has_a_name_in_itself() -> None:
    assert dict(LANGUAGES) == {"en": "English", "zh-CN": "简体中文"}


def test_every_code_that_pages_name_is_in_the_catalogue() -> None:
    """An enum may get a member: its name has to be marked, and so translated."""
    assert set(names.PRIORITIES) == {each.name.lower() for each in Priority}
    assert set(names.ORDERS) == set(map(str, RunOrder))
    assert set(names.EXECUTIONS) == {each.name for each in ExecutionType}
    assert set(names.COMMANDS) == {each.name for each in CommandType}
    releases = {each.name for each in ReleaseState}
    assert set(names.RELEASES) == releases | {each.lower() for each in releases}
    known = {each.id for each in said()}
    assert {text for kind in KINDS.values() for text in (kind.title, kind.text)} <= known


@pytest.mark.parametrize(
    ("look", "word"),
    [
        (looks.RUNS[ProcessState.SUBMITTED], "提交成功"),
        (looks.RUNS[ProcessState.RUNNING], "正在运行"),
        (looks.RUNS[ProcessState.READY_PAUSE], "准备暂停"),
        (looks.RUNS[ProcessState.PAUSE], "暂停"),
        (looks.RUNS[ProcessState.READY_STOP], "准备停止"),
        (looks.RUNS[ProcessState.STOP], "停止"),
        (looks.RUNS[ProcessState.FAILURE], "失败"),
        (looks.RUNS[ProcessState.SUCCESS], "成功"),
        (looks.RUNS[ProcessState.SERIAL_WAIT], "串行等待"),
        (looks.TASKS[TaskState.NEED_FAULT_TOLERANCE], "需要容错"),
        (looks.TASKS[TaskState.DELAY_EXECUTION], "延时执行"),
        (looks.TASKS[TaskState.FORCED_SUCCESS], "强制成功"),
    ],
)
def test_states_have_the_words_of_dolphinscheduler(look: looks.Look, word: str) -> None:
    assert translations(CHINESE).gettext(look.word) == word


def test_no_two_states_of_a_kind_have_one_word_in_chinese() -> None:
    say = translations(CHINESE).gettext
    for table in (looks.RUNS, looks.TASKS, looks.DATES, looks.FIRES):
        words = [say(each.word) for each in table.values()]
        assert len(set(words)) == len(words)
    assert len(looks.FIRES) == len(FireOutcome)
    assert '"word":"正在运行"' in looks.known_looks(say)
    assert '"word":"running"' in looks.known_looks()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.85, "850 毫秒"),
        (5.84, "5.8 秒"),
        (100, "1 分 40 秒"),
        (7500, "2 小时 05 分"),
        (273_600, "3 天 4 小时"),
    ],
)
def test_a_span_is_told_in_chinese(seconds: float, text: str) -> None:
    assert span_text(timedelta(seconds=seconds), translations(CHINESE).gettext) == text


def test_a_day_is_told_in_both_languages() -> None:
    for month in range(1, 13):
        day = date(2013, month, month)
        assert day_text(day) == day.strftime("%a %d %b")
        assert day_text(day, translations(CHINESE).gettext).startswith(f"{month}月{month:02}日 周")

"""The index of waits: whom the end of a run concerns, and whose answers have changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from common.model.upstream import Absence, DatasetQuestion, Question
from master.logic.wait_index import WaitIndex
from tests.builders import NOON

HOUR = timedelta(hours=1)
BY_ID = Question(
    definition_id=1, definition_name=None, task=None, start=NOON, end=NOON + HOUR, apart_from=0
)
BY_NAME = replace(BY_ID, definition_id=None, definition_name="flights")
OF_TASK = replace(BY_ID, task="a")
LATER = replace(BY_ID, start=NOON + HOUR, end=NOON + 2 * HOUR)


def an_index(**waits: tuple[Question, ...]) -> WaitIndex:
    """Waits by their ids behind a letter, each with its questions."""
    index = WaitIndex()
    for name, asked in waits.items():
        index.add(int(name[1:]), asked)
    return index


@pytest.mark.parametrize(
    ("keys", "moment", "ended", "concerned"),
    [
        ((1, "other"), NOON, {None}, (1, 3, 5)),
        ((2, "flights"), NOON, {None}, (2,)),
        ((1, None), NOON, {None}, (1, 3, 5)),
        ((1, None), NOON, {"a"}, (3,)),
        ((1, None), NOON, {"b"}, ()),
        ((1, None), NOON + HOUR, {None, "b"}, (4, 5)),
        ((1, "flights"), NOON - HOUR, {None}, ()),
    ],
)
def test_the_end_of_a_run_concerns_those_whose_questions_it_may_answer(
    keys: tuple[int | str | None, ...],
    moment: datetime,
    ended: set[str | None],
    concerned: tuple[int, ...],
) -> None:
    index = an_index(w1=(BY_ID,), w2=(BY_NAME,), w3=(OF_TASK,), w4=(LATER,), w5=(BY_ID, LATER))
    assert sorted(index.concerned(keys, moment, ended)) == list(concerned)


def test_an_answer_is_news_once_and_to_all_who_have_asked() -> None:
    index = an_index(w1=(BY_ID,), w2=(BY_ID, LATER), w3=(LATER,))
    assert sorted(index.changed({BY_ID: None})) == [1, 2]
    assert index.changed({BY_ID: None}) == ()
    assert sorted(index.changed({BY_ID: Absence.NO_DEFINITION, LATER: None})) == [1, 2, 3]
    assert index.answers_to(2) == {BY_ID: Absence.NO_DEFINITION, LATER: None}


def test_an_answer_is_forgotten_with_the_last_who_asked() -> None:
    index = an_index(w1=(BY_ID,), w2=(BY_ID,))
    index.changed({BY_ID: None})
    index.remove(1)
    assert index.questions_of([1, 2]) == (BY_ID,)
    index.remove(2)
    index.remove(2)
    assert index.concerned((1,), NOON, {None}) == ()
    assert index.changed({BY_ID: None}) == ()
    index.add(3, (BY_ID,))
    assert index.changed({BY_ID: None}) == (3,)


def test_a_publication_concerns_the_waits_of_all_projects_for_the_dataset() -> None:
    first, other = (DatasetQuestion(dataset="flights", asking_project=each) for each in (1, 2))
    elsewhere = DatasetQuestion(dataset="trains", asking_project=1)
    index = WaitIndex()
    for wait, question in enumerate((first, other, elsewhere, first), start=1):
        index.add(wait, (question,))
    assert sorted(index.waiting_for("flights")) == [1, 2, 4]
    index.remove(1)
    assert sorted(index.waiting_for("flights")) == [2, 4]
    index.remove(4)
    index.remove(2)
    assert index.waiting_for("flights") == ()

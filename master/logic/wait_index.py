"""An index of waits: who asks which question, and whom the end of a run may concern.

Pure: no table and no clock. A *wait* is an attempt at a DEPENDENT task, known here by its id. Its
questions never change while it waits; the answers do. The loop of a master keeps one index of its
waits, so that it looks only at those whose upstream has changed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias, TypeVar

from common.model.upstream import Answer, AnyQuestion, DatasetQuestion, Question

_Key: TypeAlias = int | str
"""A definition as a question names it: by id or by name."""
_T = TypeVar("_T", bound=int | str)
_Q = TypeVar("_Q", bound=AnyQuestion)


class WaitIndex:
    """Waits by their questions, and questions by the definitions that they name."""

    def __init__(self) -> None:
        self._questions: dict[int, tuple[AnyQuestion, ...]] = {}
        # Dictionaries for sets in order: each question with its waits, each definition with its
        # questions, and the last answers.
        self._waits: dict[AnyQuestion, dict[int, None]] = {}
        self._about: dict[_Key, dict[Question, None]] = {}
        self._about_dataset: dict[str, dict[DatasetQuestion, None]] = {}
        self._answers: dict[AnyQuestion, Answer] = {}

    def add(self, wait: int, questions: Iterable[AnyQuestion]) -> None:
        """Enter a wait that is not there yet."""
        self._questions[wait] = asked = tuple(questions)
        for question in asked:
            self._waits.setdefault(question, {})[wait] = None
            if isinstance(question, Question):
                self._about.setdefault(_key(question), {})[question] = None
            else:
                self._about_dataset.setdefault(question.dataset, {})[question] = None

    def remove(self, wait: int) -> None:
        """Remove a wait, if it is there, with the questions that nobody else asks."""
        for question in self._questions.pop(wait, ()):
            waits = self._waits[question]
            del waits[wait]
            if waits:
                continue
            del self._waits[question]
            self._answers.pop(question, None)
            if isinstance(question, DatasetQuestion):
                _remove(self._about_dataset, question.dataset, question)
            else:
                _remove(self._about, _key(question), question)

    def questions_of(self, waits: Iterable[int]) -> tuple[AnyQuestion, ...]:
        """Return the questions of these waits, each once."""
        return tuple(
            {question: None for wait in waits for question in self._questions.get(wait, ())}
        )

    def concerned(
        self, keys: Iterable[_Key | None], moment: datetime, ended: Container[str | None]
    ) -> tuple[int, ...]:
        """Return the waits that a run of the definition with these names may decide.

        `ended` holds the names of its tasks that have ended, and None if the run itself has: that
        alone concerns those who ask about the whole run, and all who ask about a task as well.
        """
        found: dict[int, None] = {}
        for key in keys:
            for question in self._about.get(key, ()) if key is not None else ():
                is_about = None in ended or (question.task is not None and question.task in ended)
                if is_about and question.start <= moment < question.end:
                    found |= self._waits[question]
        return tuple(found)

    def waiting_for(self, dataset: str) -> tuple[int, ...]:
        """Return the waits for intervals of a dataset."""
        found: dict[int, None] = {}
        for question in self._about_dataset.get(dataset, ()):
            found |= self._waits[question]
        return tuple(found)

    def changed(self, answers: Mapping[AnyQuestion, Answer]) -> tuple[int, ...]:
        """Take these answers over; return the waits that had others, or none."""
        found: dict[int, None] = {}
        for question, answer in answers.items():
            waits = self._waits.get(question)
            if waits is not None and self._answers.get(question, _NEVER_ASKED) != answer:
                self._answers[question] = answer
                found |= waits
        return tuple(found)

    def answers_to(self, wait: int) -> dict[AnyQuestion, Answer]:
        """Return the last answers to the questions of a wait."""
        return {
            question: self._answers[question]
            for question in self._questions.get(wait, ())
            if question in self._answers
        }


_NEVER_ASKED: Final = object()


def _remove(about: dict[_T, dict[_Q, None]], key: _T, question: _Q) -> None:
    """Remove a question about one definition or dataset."""
    questions = about[key]
    del questions[question]
    if not questions:
        del about[key]


def _key(question: Question) -> _Key:
    if question.definition_id is not None:
        return question.definition_id
    return question.definition_name or ""

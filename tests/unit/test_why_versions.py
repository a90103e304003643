"""A later version of the definition in the cause for a run that has ended."""

from __future__ import annotations

import pytest

from common.model.states import ProcessState
from common.why.facts import Facts, Run
from common.why.runs import ended_run_cause
from common.why.shape import Shapes
from tests.builders import NOON


@pytest.mark.parametrize(
    ("latest", "hint"),
    [
        (3, "; it has version 2 of its definition, and with --with-version latest"),
        (2, ""),
        (None, ""),
    ],
)
def test_a_failed_run_names_a_later_version_of_its_definition(
    latest: int | None, hint: str
) -> None:
    run = Run(
        id=1,
        name="nightly-2-1",
        definition_name="nightly",
        state=int(ProcessState.FAILURE),
        start_time=NOON,
        version=2,
        latest_version=latest,
    )
    facts = Facts(now=NOON, alive=None)
    cause = ended_run_cause(facts, Shapes({}), run, ProcessState.FAILURE, "process instance 1")
    _, _, found = (cause.next or "").partition("orcaflow instance recover 1")
    assert found.partition(" it takes")[0] == hint

"""CONDITIONS: the branch taken for each combination of outcomes (T42)."""

from __future__ import annotations

import pytest

from common.model.control import Condition, ConditionGroup, Conditions, Outcome, Relation
from master.logic.conditions import decide_conditions

AND, OR = Relation.AND, Relation.OR
SUCCESS, FAILURE, OTHER = Outcome.SUCCESS, Outcome.FAILURE, Outcome.OTHER


def conditions(relation: Relation, *groups: tuple[Relation, dict[str, Outcome]]) -> Conditions:
    return Conditions(
        relation=relation,
        groups=tuple(
            ConditionGroup(
                relation=inner,
                conditions=tuple(
                    Condition(task=task, wanted=wanted) for task, wanted in wants.items()
                ),
            )
            for inner, wants in groups
        ),
        success=("go",),
        failed=("mail",),
    )


A_GOOD_B_BAD = {"a": SUCCESS, "b": FAILURE}


@pytest.mark.parametrize(
    ("relation", "outcomes", "expected"),
    [
        (AND, {"a": SUCCESS, "b": FAILURE}, True),
        (AND, {"a": SUCCESS, "b": SUCCESS}, False),
        (AND, {"a": FAILURE, "b": FAILURE}, False),
        (OR, {"a": FAILURE, "b": FAILURE}, True),
        (OR, {"a": SUCCESS, "b": SUCCESS}, True),
        (OR, {"a": FAILURE, "b": SUCCESS}, False),
    ],
)
def test_the_inner_relation_joins_the_conditions_of_a_group(
    relation: Relation, outcomes: dict[str, Outcome], expected: bool
) -> None:
    assert decide_conditions(conditions(AND, (relation, A_GOOD_B_BAD)), outcomes) is expected


@pytest.mark.parametrize(
    ("outer", "expected"),
    [(AND, False), (OR, True)],
)
def test_the_outer_relation_joins_the_groups(outer: Relation, expected: bool) -> None:
    written = conditions(outer, (AND, {"a": SUCCESS}), (AND, {"b": SUCCESS}))
    assert decide_conditions(written, A_GOOD_B_BAD) is expected


def test_t42_a_failed_upstream_is_an_outcome_like_any_other() -> None:
    assert decide_conditions(conditions(AND, (AND, {"a": FAILURE})), {"a": FAILURE})


@pytest.mark.parametrize("wanted", [SUCCESS, FAILURE])
@pytest.mark.parametrize("outcomes", [{}, {"a": OTHER}])
def test_t42_a_skipped_or_missing_upstream_matches_nothing(
    wanted: Outcome, outcomes: dict[str, Outcome]
) -> None:
    assert not decide_conditions(conditions(AND, (AND, {"a": wanted})), outcomes)


def test_of_nothing_and_is_true_and_or_is_false() -> None:
    assert decide_conditions(conditions(AND), {})
    assert not decide_conditions(conditions(OR), {})
    assert decide_conditions(conditions(OR, (AND, {})), {})
    assert not decide_conditions(conditions(AND, (OR, {})), {})

"""Chooses between the success and the failed branch of a CONDITIONS (contract §5.8, DO).

Pure. It is evaluated when every direct upstream has ended, retries included. Either choice is a
result of the task, never a failure of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from common.model.control import Conditions, Outcome, Relation


def decide_conditions(conditions: Conditions, outcomes: Mapping[str, Outcome]) -> bool:
    """Return True for `conditions.success`, False for `conditions.failed`.

    A task that is skipped, killed or not among the outcomes matches neither SUCCESS nor FAILURE.
    """
    return _joined(
        conditions.relation,
        (
            _joined(
                group.relation,
                (
                    outcomes.get(condition.task, Outcome.OTHER) is condition.wanted
                    for condition in group.conditions
                ),
            )
            for group in conditions.groups
        ),
    )


def _joined(relation: Relation, results: Iterable[bool]) -> bool:
    """Join the results; of none, AND is true and OR is false (contract §10.1)."""
    return all(results) if relation is Relation.AND else any(results)

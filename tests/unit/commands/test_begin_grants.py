"""A run starts only with a worker group, an environment and a tenant that its project may use."""

from __future__ import annotations

import pytest

from common.model.grants import GrantedObject, GrantKind
from common.model.plans import Begin, Reject
from tests.unit.commands.planning import a_definition, planned, read

GRANTS = frozenset(
    {GrantedObject(GrantKind.WORKER_GROUP, 5), GrantedObject(GrantKind.ENVIRONMENT, 2**40)}
)
IN_ENVIRONMENT = f'{{"environmentCode": "{2**40}"}}'


def test_a_run_begins_with_a_group_and_an_environment_of_its_project() -> None:
    command = read(IN_ENVIRONMENT, worker_group_id=5)
    assert isinstance(planned(command, a_definition(grants=GRANTS)), Begin)
    # A run on any worker and without an environment needs no grant.
    assert isinstance(planned(read(), a_definition()), Begin)


@pytest.mark.parametrize("kind", [GrantKind.WORKER_GROUP, GrantKind.ENVIRONMENT])
def test_a_run_is_rejected_after_its_grant_was_revoked(kind: GrantKind) -> None:
    left = frozenset(each for each in GRANTS if each.kind is not kind)
    found = planned(read(IN_ENVIRONMENT, worker_group_id=5), a_definition(grants=left))
    assert isinstance(found, Reject)
    number = 5 if kind is GrantKind.WORKER_GROUP else 2**40
    assert f"the project has no {kind.title} {number}: an administrator" in found.reason
    assert f"`orcaflow {kind.word} grant {number} --project PROJECT`" in found.reason


def test_a_run_is_rejected_whose_project_may_not_use_the_definition_s_tenant() -> None:
    found = planned(read(), a_definition(tenant_id=9, lacked_tenant=9))
    assert isinstance(found, Reject)
    assert "the project has no tenant 9" in found.reason

"""Drafts and proposals: several authors at once, review by somebody else, and its every refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, update

from common.errors import NotAllowedError, NotFoundError, SchedulerError
from common.model.proposals import ProposalState
from common.model.states import ExecutionType, ReleaseState
from common.store import tables as t
from operations.definition_files import InvalidFilesError
from operations.definition_versions import export_version, restore, versions
from operations.definitions import (
    export_definition,
    release,
    replace_definition,
    set_execution_type,
)
from operations.drafts import discard_draft, draft, publish_draft, rebase_draft, save_draft
from operations.errors import ChangedMeanwhileError, ForbiddenError, NameTakenError, UsageError
from operations.linting import read_content
from operations.proposals import (
    approve,
    proposal_detail,
    proposals,
    propose,
    reject,
    waiting_for_me,
    withdraw,
)
from operations.reviewing import ReviewNeededError
from operations.session import Session
from tests.integration.reviewing import (
    a_document,
    a_person,
    imported,
    saved,
    scripts_of,
    tag_of,
    with_review,
)


@pytest.fixture
def ada(owner: Session) -> Session:
    return a_person(owner, "ada", "author")


@pytest.fixture
def bob(owner: Session) -> Session:
    return a_person(owner, "bob", "admin")


@pytest.fixture
def nightly(owner: Session) -> int:
    return imported(owner, a_document(a="1", b="1"))


def document_of(session: Session, number: int) -> Any:
    return export_definition(session, number).document


def audited(db: Engine, action: str) -> list[tuple[str, str]]:
    line = t.audit_log.c
    with db.connect() as connection:
        found = connection.execute(
            select(line.user_name, line.outcome).where(line.action == action).order_by(line.id)
        )
        return [(each.user_name, each.outcome) for each in found]


def test_a_draft_begins_with_what_is_in_force_and_is_its_author_s_alone(
    ada: Session, bob: Session, nightly: int, db: Engine
) -> None:
    begun = draft(ada, nightly)
    assert (begun.revision, begun.base_version, begun.looked.mistakes) == (0, 1, ())
    assert scripts_of(json.loads(begun.content)) == {"a": "1", "b": "1"}
    text = json.dumps(a_document(a="2", b="1"))
    first = save_draft(ada, text.encode(), nightly, expected=f'"{begun.tag}"')
    assert (first.revision, first.content, first.is_outdated) == (1, text, False)
    assert first.difference is not None
    assert [each.name for each in first.difference.changed] == ["a"]
    # The same text is no new revision.
    again = save_draft(ada, text.encode(), nightly, expected=f'"{first.tag}"')
    assert (again.revision, again.tag) == (1, first.tag)
    assert draft(bob, nightly).revision == 0
    assert scripts_of(document_of(ada, nightly)) == {"a": "1", "b": "1"}
    gone = discard_draft(ada, nightly, expected=f'"{first.tag}"')
    assert (gone.revision, gone.tag) == (0, begun.tag)
    assert discard_draft(ada, nightly, expected=f'"{first.tag}"').tag == begun.tag
    assert audited(db, "definition.draft") == [("ada", "done")]
    assert audited(db, "definition.discard") == [("ada", "done"), ("ada", "done")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("- a\n b: [", "YAML"),
        ("[]", "is no object"),
        ('{"processDefinitionJson": 3}', "is no object"),
        ('{"processDefinitionJson": {"tasks": 3}}', "tasks"),
        ('{"processDefinitionJson": {"tasks": [7, {"name": ["x"]}]}, "globalParams": 7}', ""),
        ('{"name": "other", "processDefinitionJson": {"tasks": []}}', "does not change it"),
        ("", ""),
    ],
)
def test_a_text_with_mistakes_is_kept_and_told_and_is_never_proposed(
    ada: Session, nightly: int, content: str, told: str
) -> None:
    found = save_draft(ada, content.encode(), nightly, expected="*")
    assert found.content == content
    assert any(told in str(each) for each in found.looked.mistakes), found.looked.mistakes
    assert draft(ada, nightly).content == content
    with pytest.raises(InvalidFilesError):
        propose(ada, nightly)
    with pytest.raises(InvalidFilesError):
        publish_draft(ada, nightly)
    assert draft(ada, nightly).content == content


@pytest.mark.parametrize("content", [b"\xff", b"a\0b"])
def test_a_text_that_no_database_holds_is_refused(
    ada: Session, nightly: int, content: bytes
) -> None:
    with pytest.raises(UsageError):
        save_draft(ada, content, nightly, expected="*")


def test_two_windows_that_save_at_once_are_merged_by_task_or_told_apart(
    ada: Session, nightly: int
) -> None:
    saved(ada, nightly, a_document(a="1", b="1"))
    read = tag_of(ada, nightly)
    save_draft(ada, json.dumps(a_document(a="2", b="1")).encode(), nightly, expected=read)
    mine = json.dumps(a_document(a="1", b="2")).encode()
    merged = save_draft(ada, mine, nightly, expected=read)
    assert scripts_of(json.loads(merged.content)) == {"a": "2", "b": "2"}
    assert (merged.revision, merged.merged) == (3, ("task a",))
    with pytest.raises(ChangedMeanwhileError, match="task 'a' changed") as refused:
        save_draft(ada, json.dumps(a_document(a="3", b="1")).encode(), nightly, expected=read)
    assert refused.value.tag == merged.tag
    assert draft(ada, nightly).content == merged.content
    with pytest.raises(ChangedMeanwhileError):
        save_draft(ada, b"{", nightly, expected=read)


def test_of_two_first_saves_at_the_same_moment_none_is_lost(ada: Session, nightly: int) -> None:
    read, together = tag_of(ada, nightly), Barrier(2)

    def save(document: dict[str, Any]) -> str:
        together.wait()
        try:
            save_draft(ada, json.dumps(document).encode(), nightly, expected=read)
        except ChangedMeanwhileError:
            return "refused"
        return "saved"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(save, [a_document(a="2", b="1"), a_document(a="1", b="2")]))
    found = scripts_of(json.loads(draft(ada, nightly).content))
    wanted = {
        "a": "2" if outcomes[0] == "saved" else "1",
        "b": "2" if outcomes[1] == "saved" else "1",
    }
    assert (found, "saved" in outcomes) == (wanted, True)


def test_a_draft_keeps_references_and_no_secret(ada: Session, owner: Session, db: Engine) -> None:
    number = imported(owner, a_document(a="1", secret="hunter2"))
    assert "hunter2" not in draft(ada, number).content
    typed = save_draft(
        ada, json.dumps(a_document(a="2", secret="hunter3")).encode(), number, expected="*"
    )
    assert "$ENV{ORCAFLOW_SECRET_DB_PASSWORD}" in typed.content
    assert any("keeps no secret" in each.problem for each in typed.looked.findings)
    publish_draft(ada, number)
    with db.connect() as connection:
        kept = connection.scalars(select(t.definition_draft_save.c.content)).all()
        row = connection.scalar(select(t.process_definition.c.global_params)) or ""
    assert "hunter2" in row
    assert "hunter" not in "".join(kept)


def test_without_a_review_an_author_publishes_what_is_based_on_what_is_in_force(
    ada: Session, owner: Session, nightly: int, db: Engine
) -> None:
    with pytest.raises(NotAllowedError, match="no draft"):
        publish_draft(ada, nightly)
    saved(ada, nightly, a_document(a="2", b="1"))
    imported(owner, a_document(a="1", b="9"))
    with pytest.raises(NotAllowedError, match="task 'b' changed"):
        publish_draft(ada, nightly)
    assert draft(ada, nightly).is_outdated
    rebased = rebase_draft(ada, nightly)
    assert (rebased.is_outdated, rebased.base_version, rebased.merged) == (False, 2, ("task b",))
    made = publish_draft(ada, nightly, note="faster", expected=f'"{rebased.tag}"')
    assert (made.version, made.changed) == (3, True)
    assert scripts_of(document_of(ada, nightly)) == {"a": "2", "b": "9"}
    (newest, *_) = versions(ada, nightly, limit=5)
    assert (newest.user_name, newest.note) == ("ada", "faster")
    assert draft(ada, nightly).revision == 0
    outcomes = audited(db, "definition.publish")
    assert outcomes == [("ada", "refused"), ("ada", "refused"), ("ada", "done")]


def test_a_draft_whose_task_somebody_else_has_changed_is_not_merged(
    ada: Session, owner: Session, nightly: int
) -> None:
    saved(ada, nightly, a_document(a="2", b="1"))
    imported(owner, a_document(a="3", b="1"))
    with pytest.raises(NotAllowedError, match="task a"):
        rebase_draft(ada, nightly)
    assert scripts_of(json.loads(draft(ada, nightly).content)) == {"a": "2", "b": "1"}


def test_an_approved_proposal_is_a_version_by_its_author_with_its_line(
    ada: Session, bob: Session, nightly: int, db: Engine
) -> None:
    saved(ada, nightly, a_document(a="2", b="1"))
    made = propose(ada, nightly, note="faster")
    assert (made.state, made.user_name, made.base_version) == (ProposalState.WAITING, "ada", 1)
    # It is frozen, and its author writes on.
    saved(ada, nightly, a_document(a="3", b="1"))
    assert [each.id for each in waiting_for_me(bob, limit=9)] == [made.id]
    assert waiting_for_me(ada, limit=9) == []
    seen = proposal_detail(bob, made.id, nightly)
    assert (seen.why_not, seen.is_outdated) == (None, False)
    assert [each.name for each in seen.difference.changed] == ["a"]
    done = approve(bob, made.id, nightly)
    assert (done.state, done.decided_by, done.version) == (
        ProposalState.APPROVED,
        "bob",
        2,
    )
    assert scripts_of(document_of(ada, nightly)) == {"a": "2", "b": "1"}
    (newest, *_) = versions(ada, nightly, limit=5)
    assert newest.user_name == "ada"
    assert newest.note == f"proposal {made.id}, approved by bob: faster"
    assert scripts_of(json.loads(draft(ada, nightly).content)) == {"a": "3", "b": "1"}
    assert audited(db, "definition.propose") == [("ada", "done")]
    assert audited(db, "definition.approve") == [("bob", "done")]
    for decide in (approve, withdraw):
        with pytest.raises(NotAllowedError, match="approved by bob"):
            decide(bob, made.id, nightly)
    with pytest.raises(NotAllowedError, match="approved by bob"):
        reject(bob, made.id, nightly, reason="late")


def test_a_draft_that_was_approved_as_it_was_proposed_is_gone(
    ada: Session, bob: Session, nightly: int
) -> None:
    saved(ada, nightly, a_document(a="2", b="1"))
    approve(bob, propose(ada, nightly).id, nightly)
    assert draft(ada, nightly).revision == 0


def test_nobody_approves_or_rejects_an_own_proposal_whatever_the_role(
    bob: Session, owner: Session, nightly: int, db: Engine
) -> None:
    mine = propose(bob, nightly, document=a_document(a="2", b="1"))
    for decide in (approve, lambda *given: reject(*given, reason="no")):
        with pytest.raises(ForbiddenError, match="somebody else than bob"):
            decide(bob, mine.id, nightly)
    assert proposal_detail(bob, mine.id, nightly).why_not == "needs somebody else than bob"
    theirs = propose(owner, nightly, document=a_document(a="3", b="1"))
    with pytest.raises(ForbiddenError, match="somebody else than database"):
        approve(owner, theirs.id, nightly)
    assert audited(db, "definition.approve") == [("bob", "refused"), ("database", "refused")]
    assert audited(db, "definition.reject") == [("bob", "refused")]
    assert approve(owner, mine.id, nightly).version == 2


@pytest.mark.parametrize("role", ["viewer", "operator", "author"])
def test_a_role_below_admin_decides_nothing(
    owner: Session, ada: Session, nightly: int, db: Engine, role: str
) -> None:
    made = propose(ada, nightly, document=a_document(a="2", b="1"))
    other = a_person(owner, "eve", role)
    for decide in (approve, withdraw, lambda *given: reject(*given, reason="no")):
        with pytest.raises(ForbiddenError):
            decide(other, made.id, nightly)
    assert "role admin" in (proposal_detail(other, made.id, nightly).why_not or "")
    if role != "author":
        for order in (
            lambda: saved(other, nightly, "{}"),
            lambda: draft(other, nightly),
            lambda: propose(other, nightly, document=a_document(a="3")),
            lambda: publish_draft(other, nightly),
        ):
            with pytest.raises(ForbiddenError):
                order()
    refusals = [audited(db, f"definition.{each}") for each in ("approve", "withdraw", "reject")]
    assert refusals == [[("eve", "refused")]] * 3
    assert proposal_detail(ada, made.id, nightly).row.state is ProposalState.WAITING


def test_to_whoever_has_no_role_there_is_no_proposal(
    owner: Session, ada: Session, nightly: int
) -> None:
    made = propose(ada, nightly, document=a_document(a="2", b="1"))
    eve = a_person(owner, "eve", "none")
    for order in (
        lambda: proposals(eve, nightly, limit=9),
        lambda: proposal_detail(eve, made.id, nightly),
        lambda: approve(eve, made.id, nightly),
        lambda: reject(eve, made.id, nightly, reason="no"),
        lambda: withdraw(eve, made.id, nightly),
        lambda: draft(eve, nightly),
        lambda: proposals(eve, project=1, limit=9),
        lambda: draft(eve, project=1),
    ):
        with pytest.raises(NotFoundError):
            order()
    other = imported(owner, a_document("other", a="1"))
    for number in (made.id, 99, 2**40):
        with pytest.raises(NotFoundError):
            proposal_detail(ada, number, other)
    with pytest.raises(NotFoundError):
        proposal_detail(ada, made.id, project=1)


def test_what_has_changed_since_is_not_approved_and_its_difference_is_told(
    ada: Session, bob: Session, owner: Session, nightly: int, db: Engine
) -> None:
    made = propose(ada, nightly, document=a_document(a="2", b="1"))
    imported(owner, a_document(a="1", b="9"))
    with pytest.raises(NotAllowedError, match=r"version 2, task 'b' changed"):
        approve(bob, made.id, nightly)
    seen = proposal_detail(bob, made.id, nightly)
    assert seen.is_outdated
    assert seen.since is not None
    assert [each.name for each in seen.since.changed] == ["b"]
    assert "changed since" in (seen.why_not or "")
    assert scripts_of(document_of(ada, nightly)) == {"a": "1", "b": "9"}
    assert seen.row.state is ProposalState.WAITING
    assert audited(db, "definition.approve") == [("bob", "refused")]


def test_a_change_that_makes_no_version_outdates_a_proposal_too(
    ada: Session, bob: Session, owner: Session, nightly: int
) -> None:
    made = propose(ada, nightly, document=a_document(a="2", b="1"))
    set_execution_type(owner, [nightly], ExecutionType.SERIAL_WAIT)
    with pytest.raises(NotAllowedError, match="has changed since"):
        approve(bob, made.id, nightly)


def test_the_same_proposal_twice_is_one_and_another_takes_its_place(
    ada: Session, bob: Session, nightly: int
) -> None:
    first = propose(ada, nightly, document=a_document(a="2", b="1"), note="n")
    assert propose(ada, nightly, document=a_document(a="2", b="1"), note="n").id == first.id
    theirs = propose(bob, nightly, document=a_document(a="4", b="1"))
    second = propose(ada, nightly, document=a_document(a="3", b="1"))
    found = {each.id: each.state for each in proposals(ada, nightly, limit=9)}
    assert found == {
        first.id: ProposalState.REPLACED,
        theirs.id: ProposalState.WAITING,
        second.id: ProposalState.WAITING,
    }
    with pytest.raises(NotAllowedError, match="was replaced"):
        approve(bob, first.id, nightly)
    with pytest.raises(NotAllowedError, match="in force as you propose it"):
        propose(ada, nightly, document=a_document(a="1", b="1"))


def test_a_proposal_that_can_not_be_imported_is_refused_when_it_is_made(
    ada: Session, nightly: int, db: Engine
) -> None:
    document = a_document(a="2")
    document["processDefinitionJson"]["tasks"].append(
        {
            "id": "tasks-s",
            "name": "s",
            "type": "SUB_PROCESS",
            "params": {"processDefinitionName": "nowhere"},
            "preTasks": [],
        }
    )
    with pytest.raises(InvalidFilesError, match="nowhere"):
        propose(ada, nightly, document=document)
    unknown = a_document(a="2", secret="$ENV{ORCAFLOW_SECRET_DB_PASSWORD}")
    with pytest.raises(InvalidFilesError, match="ORCAFLOW_SECRET_DB_PASSWORD"):
        propose(ada, nightly, document=unknown)
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.definition_proposal)) == 0
        assert connection.scalar(select(t.process_definition.c.version)) == 1


def test_a_rejection_gives_its_reason_and_the_author_withdraws(
    ada: Session, bob: Session, nightly: int, db: Engine
) -> None:
    first = propose(ada, nightly, document=a_document(a="2", b="1"))
    with pytest.raises(UsageError):
        reject(bob, first.id, nightly, reason=" ")
    assert reject(bob, first.id, nightly, reason="too slow").reason == "too slow"
    with pytest.raises(NotAllowedError, match="rejected by bob: too slow"):
        approve(bob, first.id, nightly)
    second = propose(ada, nightly, document=a_document(a="3", b="1"))
    assert withdraw(ada, second.id, nightly).state is ProposalState.WITHDRAWN
    with pytest.raises(NotAllowedError, match="withdrawn by ada"):
        withdraw(ada, second.id, nightly)
    assert audited(db, "definition.withdraw") == [("ada", "done"), ("ada", "refused")]
    assert audited(db, "definition.reject") == [("bob", "done")]


@pytest.mark.parametrize("attempt", range(3))
def test_of_an_approval_and_a_withdrawal_at_once_one_is_done(
    ada: Session, bob: Session, nightly: int, attempt: int
) -> None:
    made = propose(ada, nightly, document=a_document(a=f"new {attempt}", b="1"))
    together = Barrier(3)

    def order(given: tuple[Callable[..., object], Session]) -> bool:
        decide, session = given
        together.wait()
        try:
            decide(session, made.id, nightly)
        except NotAllowedError:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(order, [(approve, bob), (withdraw, ada), (approve, bob)]))
    assert done.count(True) == 1
    (row,) = proposals(ada, nightly, limit=9)
    is_in_force = scripts_of(document_of(ada, nightly))["a"] != "1"
    assert (row.state is ProposalState.APPROVED) == is_in_force == (done[1] is False)


def test_under_review_every_other_way_to_change_a_definition_is_refused_with_the_cure(
    ada: Session, bob: Session, owner: Session, nightly: int
) -> None:
    imported(owner, a_document(a="2", b="1"))
    saved(ada, nightly, a_document(a="3", b="1"))
    with_review(owner)
    (document,) = read_content(
        json.dumps(a_document(a="4", b="1")).encode(), resources=owner.config.data_dir
    )
    ways: list[Callable[[Session], object]] = [
        lambda who: imported(who, a_document(a="4", b="1")),
        lambda who: imported(who, a_document("fresh", a="4")),
        lambda who: replace_definition(who, nightly, document, expected="*", online=None),
        lambda who: restore(who, nightly, 1),
        lambda who: set_execution_type(who, [nightly], ExecutionType.SERIAL_WAIT),
    ]
    for session in (ada, bob):
        for way in ways:
            with pytest.raises(ReviewNeededError, match="orcaflow definition propose"):
                way(session)
    with pytest.raises(ReviewNeededError):
        publish_draft(ada, nightly)
    # What was saved before goes on; and the database's owner is asked for nothing.
    assert release(ada, [nightly], ReleaseState.ONLINE)[0].changed
    release(ada, [nightly], ReleaseState.OFFLINE)
    imported(owner, a_document(a="5", b="1"))
    with pytest.raises(ReviewNeededError, match="approved version 3"):
        release(ada, [nightly], ReleaseState.ONLINE)
    made = propose(ada, nightly, document=a_document(a="6", b="1"))
    assert approve(bob, made.id, nightly).version == 4
    assert release(ada, [nightly], ReleaseState.ONLINE)[0].changed
    with_review(owner, review=False)
    imported(ada, a_document(a="7", b="1"))


def test_a_new_definition_is_proposed_in_its_project_and_is_one_once_approved(
    ada: Session, bob: Session, owner: Session, db: Engine
) -> None:
    with_review(owner)
    text = json.dumps(a_document("fresh", a="1")).encode()
    assert draft(ada, project=1).revision == 0
    first = save_draft(ada, text, project=1, expected='"none"')
    assert (first.revision, first.looked.mistakes) == (1, ())
    made = propose(ada, project=1, note="new")
    assert [each.id for each in proposals(bob, project="default", limit=9)] == [made.id]
    assert proposal_detail(bob, made.id, project=1).difference.added == ("a",)
    done = approve(bob, made.id, project=1)
    assert (done.version, done.state) == (1, ProposalState.APPROVED)
    assert draft(ada, project=1).revision == 0
    number = done.definition_id or 0
    assert proposal_detail(bob, made.id, number).row.version == 1
    assert "approved by bob" in (versions(ada, number, limit=1)[0].note or "")
    with pytest.raises(NameTakenError):
        propose(ada, project=1, document=a_document("fresh", a="2"))
    assert export_version(ada, number, 1).document["name"] == "fresh"
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(name="renamed"))
    propose(ada, project=1, document=a_document("fresh", a="2"))


def test_drafts_and_proposals_go_with_their_definition(
    ada: Session, nightly: int, db: Engine
) -> None:
    saved(ada, nightly, a_document(a="2", b="1"))
    propose(ada, nightly)
    with db.begin() as connection:
        connection.execute(t.process_definition.delete())
        for table in (t.definition_draft, t.definition_draft_save, t.definition_proposal):
            assert connection.scalar(select(func.count()).select_from(table)) == 0


def test_a_state_that_is_none_is_refused_by_the_database(nightly: int, db: Engine) -> None:
    row = insert(t.definition_proposal).values(
        project_id=1, name="x", user_id=1, user_name="x", document="{}", state=9
    )
    with pytest.raises(Exception, match="state_check"), db.begin() as connection:
        connection.execute(row)


def test_the_errors_are_those_that_callers_know() -> None:
    assert issubclass(ReviewNeededError, SchedulerError)

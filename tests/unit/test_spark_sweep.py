"""Orphaned applications, and the time at which they are killed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from worker.spark.managers.base import Application, AppState
from worker.spark.managers.sweep import PATIENCE, Sight, Sweep, decide, sights
from worker.spark.managers.tags import Tags

CLUSTER = "0123456789ab"
TAGS = Tags(cluster=CLUSTER, key="secret")
START = timedelta(hours=1)


def an_application(
    number: int, state: AppState = AppState.RUNNING, tags: Tags = TAGS
) -> Application:
    return Application(id=f"app-{number}", tags=("x", tags.of(number)), name="n", state=state)


def seen(*applications: Application, place: str = "yarn") -> list[Sight]:
    return sights(place, TAGS, applications)


def swept(
    *applications: Application,
    over: Mapping[int, bool | None],
    before: Sweep | None = None,
    after: timedelta = timedelta(),
    asked: tuple[str, ...] = ("yarn",),
) -> Sweep:
    return decide(
        seen(*applications), asked=asked, over=over, before=before or Sweep(), now=START + after
    )


def ids(found: Sweep) -> list[str]:
    return [each.application.id for each in found.kill]


def test_only_live_applications_with_a_tag_of_ours_are_looked_at() -> None:
    found = seen(
        an_application(1),
        an_application(2, AppState.WAITING),
        an_application(3, AppState.SUCCEEDED),
        an_application(4, tags=Tags(cluster="ffffffffffff", key="secret")),
        an_application(5, tags=Tags(cluster=CLUSTER, key="guessed")),
        Application(id="other", tags=(), name="", state=AppState.RUNNING),
    )
    assert [each.task_instance_id for each in found] == [1, 2]


def test_applications_of_a_former_version_are_swept_by_their_tags_without_a_seal() -> None:
    former = Application(
        id="app-1", tags=(f"orcaflow-{CLUSTER}-1",), name="n", state=AppState.RUNNING
    )
    assert [each.task_instance_id for each in seen(former)] == [1]


def test_an_orphan_is_ended_when_it_has_been_one_for_a_while() -> None:
    first = swept(an_application(1), over={1: True})
    assert ids(first) == []
    early = swept(an_application(1), over={1: True}, before=first, after=PATIENCE / 2)
    assert ids(early) == []
    assert ids(swept(an_application(1), over={1: True}, before=early, after=PATIENCE)) == ["app-1"]


def test_an_orphan_that_goes_on_is_killed_again() -> None:
    first = swept(an_application(1), over={1: True})
    second = swept(an_application(1), over={1: True}, before=first, after=PATIENCE)
    third = swept(an_application(1), over={1: True}, before=second, after=2 * PATIENCE)
    assert ids(second) == ids(third) == ["app-1"]


def test_an_orphan_that_is_gone_is_told_of_once() -> None:
    first = swept(an_application(1), over={1: True})
    second = swept(an_application(1), over={1: True}, before=first, after=PATIENCE)
    gone = swept(over={}, before=second, after=2 * PATIENCE)
    assert gone.gone == (("yarn", "app-1"),)
    assert swept(over={}, before=gone, after=3 * PATIENCE).gone == ()


def test_what_somebody_follows_is_left_alone_for_ever() -> None:
    sweep = Sweep()
    for number in range(5):
        sweep = swept(an_application(1), over={1: False}, before=sweep, after=number * PATIENCE)
        assert ids(sweep) == []


def test_an_attempt_that_was_followed_again_is_no_orphan_any_more() -> None:
    first = swept(an_application(1), over={1: True})
    followed = swept(an_application(1), over={1: False}, before=first, after=PATIENCE)
    again = swept(an_application(1), over={1: True}, before=followed, after=2 * PATIENCE)
    assert ids(again) == []


def test_an_attempt_that_is_not_known_proves_nothing_and_is_told_of_once() -> None:
    first = swept(an_application(1), over={1: None})
    assert [each.application.id for each in first.unknown] == ["app-1"]
    second = swept(an_application(1), over={1: None}, before=first, after=5 * PATIENCE)
    assert second.unknown == ()
    assert ids(first) == ids(second) == []


def test_a_manager_that_did_not_answer_changes_nothing() -> None:
    first = swept(an_application(1), over={1: True})
    silent = swept(over={}, before=first, after=PATIENCE, asked=())
    assert silent.gone == ()
    assert silent.orphans == first.orphans
    back = swept(an_application(1), over={1: True}, before=silent, after=2 * PATIENCE)
    assert ids(back) == ["app-1"]


def test_the_same_id_at_another_manager_is_another_application() -> None:
    first = swept(an_application(1), over={1: True})
    elsewhere = decide(
        seen(an_application(1), place="other"),
        asked=("yarn", "other"),
        over={1: True},
        before=first,
        now=START + PATIENCE,
    )
    assert ids(elsewhere) == []
    assert elsewhere.gone == (("yarn", "app-1"),)

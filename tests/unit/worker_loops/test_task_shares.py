"""The share of a worker's slots that one project may hold while other projects exist."""

from __future__ import annotations

from common.model.grants import GrantKind
from tests.unit.worker_loops.place import Place


def a_place(**more: int) -> Place:
    place = Place(**{"slots": 10, "batch": 20, **more})
    place.join()
    return place


def asked(place: Place) -> list[str]:
    """Collect the names of the queries from now on."""
    names: list[str] = []
    place.database.read_hook = names.append
    return names


def claimed_once(place: Place) -> list[int]:
    """Let the worker claim one batch; return all attempts started since its start."""
    before = len(place.attempts.started)
    while len(place.attempts.started) == before:
        place.worker.claims.run_once()
    return place.attempts.started


def end_all(place: Place) -> None:
    for each in sorted(place.attempts.live):
        place.attempts.end(each)


def test_one_project_cannot_take_every_slot_while_another_exists() -> None:
    place = a_place()
    other = place.run_of(2)
    greedy = [place.submit() for _ in range(13)]
    assert place.claim() == greedy[:8]
    late = place.submit(of=other)
    assert place.claim() == [*greedy[:8], late]


def test_the_only_project_takes_every_slot() -> None:
    place = a_place()
    greedy = [place.submit() for _ in range(13)]
    assert place.claim() == greedy[:10]


def test_a_task_is_started_though_thousands_of_another_project_are_ahead_of_it() -> None:
    place = a_place()
    other = place.run_of(2)
    greedy = [place.submit() for _ in range(1_100)]
    late = place.submit(of=other)
    # Beside a project with one slot, the share of another is seven.
    assert place.claim() == [greedy[0], late, *greedy[1:7]]
    place.attempts.end(late)
    place.attempts.end(greedy[0])
    assert place.claim() == [greedy[0], late, *greedy[1:9]]


def test_x118_short_tasks_of_a_project_do_not_hold_up_those_of_another() -> None:
    """The short tasks end before the next claim, so their project never holds its share."""
    place = a_place(batch=3)
    other = place.run_of(2)
    short = [place.submit() for _ in range(1_100)]
    late = [place.submit(of=other) for _ in range(2)]
    assert claimed_once(place) == [short[0], late[0], short[1]]
    end_all(place)
    assert claimed_once(place)[3:] == [late[1], *short[2:4]]


def test_x118_projects_have_turns_though_one_task_fits_at_a_time() -> None:
    place = a_place(batch=1)
    other = place.run_of(2)
    short = [place.submit() for _ in range(4)]
    late = [place.submit(of=other) for _ in range(2)]
    for _ in range(4):
        claimed_once(place)
        end_all(place)
    assert place.attempts.started == [short[0], late[0], short[1], late[1]]


def test_a_passed_over_task_starts_when_one_of_its_project_has_ended() -> None:
    place = a_place()
    place.run_of(2)
    greedy = [place.submit() for _ in range(9)]
    assert place.claim() == greedy[:8]
    place.attempts.end(greedy[3])
    assert place.claim() == greedy


def test_a_batch_does_not_exceed_the_share() -> None:
    place = a_place(batch=3)
    place.run_of(2)
    greedy = [place.submit() for _ in range(13)]
    assert place.claim() == greedy[:8]


def test_a_hint_does_not_exceed_the_share() -> None:
    place = a_place()
    place.run_of(2)
    greedy = [place.submit() for _ in range(7)]
    assert place.claim() == greedy
    tasks = [place.row() for _ in range(2)]
    place.hint(*tasks)
    place.worker.claims.run_once()
    assert place.attempts.started == [*greedy, tasks[0]]


def test_two_greedy_projects_leave_a_slot_to_a_third() -> None:
    place = a_place()
    others = [place.run_of(project) for project in (2, 3)]
    for _ in range(10):
        place.submit()
        place.submit(of=others[0])
    assert len(place.claim()) < 10
    late = place.submit(of=others[1])
    assert place.claim()[-1] == late


def test_a_complement_has_a_share_of_the_slots_that_complements_may_take() -> None:
    place = a_place(complement_slots=5)
    other = place.run_of(2, history_cmd="COMPLEMENT_DATA")
    greedy = place.submit_complement(6)
    assert place.claim() == greedy[:4]
    late = place.submit(complement=True, of=other)
    assert place.claim() == [*greedy[:4], late]


def test_a_sub_process_is_charged_to_the_project_at_the_top_of_its_tree() -> None:
    place = a_place()
    shared = place.run_of(2, root_id=place.process)
    own = place.run_of(3)
    tasks = [place.submit() for _ in range(6)] + [place.submit(of=shared) for _ in range(4)]
    late = place.submit(of=own)
    assert place.claim() == [tasks[0], late, *tasks[1:7]]


def test_attempts_from_before_the_start_of_the_worker_count() -> None:
    place = a_place()
    place.run_of(2)
    left = [place.row(state=1, host="w:1", worker_incarnation=1) for _ in range(7)]
    place.attempts.adopt(left)
    greedy = [place.submit() for _ in range(3)]
    assert place.claim() == greedy[:1]


def test_a_reserved_worker_of_one_project_gives_it_every_slot() -> None:
    place = Place(slots=10, batch=20, group_ids=(7,), reserved=True)
    place.join()
    place.run_of(2)
    place.database.revoked.add((GrantKind.WORKER_GROUP, 7, 2))
    tasks = [place.submit(group=7) for _ in range(11)]
    assert place.claim() == tasks[:10]


def test_nothing_is_queried_while_no_project_can_exceed_its_share() -> None:
    place = a_place()
    place.run_of(2)
    names = asked(place)
    tasks = [place.submit() for _ in range(8)]
    assert place.claim() == tasks
    assert "several_projects" not in names


def test_a_full_worker_of_one_project_queries_only_the_number_of_projects() -> None:
    place = a_place()
    names = asked(place)
    tasks = [place.submit() for _ in range(10)]
    assert place.claim() == tasks
    for task in tasks:
        place.attempts.end(task)
        place.submit()
        place.claim()
    assert names.count("several_projects") == 1
    assert "projects" not in names


def test_the_projects_of_waiting_attempts_are_queried_once() -> None:
    place = a_place()
    place.run_of(2)
    names = asked(place)
    greedy = [place.submit() for _ in range(20)]
    place.claim()
    for task in greedy[:8]:
        place.attempts.end(task)
        place.claim()
    assert names.count("projects") == 1

"""A standalone Master, healthy and faulty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.integration.managers.bench import TAGS
from tests.integration.managers.master import FakeMaster
from tests.integration.managers.server import TROUBLES
from worker.runners.spark_watch import Watch
from worker.spark.managers.base import AppState, ManagerError, ManagerUnreachableError
from worker.spark.managers.rest import HASTY
from worker.spark.managers.standalone import StandaloneManager
from worker.spark.managers.tags import named

TAG = TAGS.of(7)
MASTER = "spark://h:7077"


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as master:
        yield master


def manager(*masters: FakeMaster, url: str = MASTER) -> StandaloneManager:
    return StandaloneManager([each.url for each in masters], master=url, limits=HASTY)


def test_an_application_is_known_by_its_name_or_by_its_driver_s_page(master: FakeMaster) -> None:
    master.add("app-1", name=named("load", TAG, MASTER))
    master.add("app-2", tag=TAG)
    master.add("app-3", tag=TAGS.of(8))
    master.add("app-4", tag="not a tag")
    master.add("app-5")
    asked = manager(master)
    assert [each.id for each in asked.with_tag(TAG)] == ["app-1", "app-2"]
    assert [each.id for each in asked.with_prefix(TAGS.prefix)] == ["app-1", "app-2", "app-3"]


def test_x102_an_application_of_another_account_is_ignored(master: FakeMaster) -> None:
    master.add("app-1", name=named("copy", TAG, MASTER), user="evil")
    master.add("app-2", name=named("load", TAG, MASTER), user="etl")
    asked = manager(master)
    said: list[str] = []
    of_account = Watch(asked, said.append, user="etl").find([TAG])
    assert [each.id for each in of_account or ()] == ["app-2"]
    of_anybody = Watch(asked, said.append).find([TAG])
    assert [each.id for each in of_anybody or ()] == ["app-1", "app-2"]


def test_a_driver_s_page_is_asked_once(master: FakeMaster) -> None:
    master.add("app-2", tag=TAG)
    asked = manager(master)
    for _ in range(3):
        assert asked.with_tag(TAG)
    assert sum(each.path.endswith("/environment") for each in master.asked) == 1


def test_nobody_asks_the_page_of_a_driver_whose_name_tells_its_tag(master: FakeMaster) -> None:
    master.add("app-1", name=named("load", TAG, MASTER), tag=TAG)
    assert manager(master).with_tag(TAG)
    assert not any(each.path.endswith("/environment") for each in master.asked)


def test_a_driver_in_the_cluster_is_told_of_with_its_application(master: FakeMaster) -> None:
    driver = "driver-20260102030405-0001"
    master.drivers[driver] = "RUNNING"
    # Its name shows the tag, but not the driver.
    master.add("app-1", name=named("load", TAG, MASTER), tag=TAG, driver=driver)
    asked = manager(master)
    assert [each.id for each in asked.with_tag(TAG)] == ["app-1", driver]
    asked.kill(asked.with_tag(TAG)[1])
    assert asked.with_tag(TAG)[1].state is AppState.KILLED


def test_a_driver_is_nameless_until_its_application_says_whose_it_is(master: FakeMaster) -> None:
    waiting, running = "driver-20260102030405-0001", "driver-20260102030405-0002"
    master.drivers.update({waiting: "SUBMITTED", running: "RUNNING"})
    asked = manager(master)
    assert asked.with_tag(TAG) == []
    assert {each.id: each.name for each in asked.nameless()} == {waiting: "Job", running: "Job"}
    master.add("app-1", tag=TAG, driver=running)
    asked.with_tag(TAG)
    (left,) = asked.nameless()
    assert (left.id, left.state) == (waiting, AppState.WAITING)
    master.drivers[waiting] = "KILLED"
    asked.with_tag(TAG)
    assert asked.nameless()[0].state is AppState.KILLED


def test_a_driver_is_known_by_its_command_in_its_worker_s_log(master: FakeMaster) -> None:
    old, ours, other = (f"driver-20260102030405-000{number}" for number in (1, 2, 3))
    master.has_worker = True
    master.drivers[old], master.commands[old] = "FINISHED", TAG
    asked = manager(master)
    assert asked.with_tag(TAG) == []
    master.drivers.update({ours: "RUNNING", other: "RUNNING"})
    master.commands.update({ours: TAG, other: TAGS.of(8)})
    assert [each.id for each in asked.with_tag(TAG)] == [ours]
    assert [each.id for each in asked.nameless()] == [old]
    master.drivers[ours], master.printed[ours] = "FAILED", "it divided by zero\n"
    (found,) = asked.with_tag(TAG)
    assert found.state is AppState.FAILED
    assert asked.log(found) == "stderr:\nit divided by zero"
    assert asked.log(replace(found, id=other)) == ""
    logs = [each.query["driverId"] for each in master.asked if each.path == "/log/"]
    assert (logs.count(old), logs.count(other)) == (0, 1)


def test_a_program_can_not_pass_itself_off_as_another_driver(master: FakeMaster) -> None:
    victim, own = "driver-20260102030405-0001", "driver-20260102030405-0002"
    master.has_worker = True
    master.drivers.update({victim: "RUNNING", own: "RUNNING"})
    master.commands.update({victim: TAGS.of(8), own: TAG})
    # The page of a driver is the program's own.
    master.add("app-1", tag=TAG, driver=victim)
    assert [each.id for each in manager(master).with_tag(TAG)] == ["app-1", own]


def test_a_driver_that_ended_in_an_unknown_way_has_failed(master: FakeMaster) -> None:
    driver = "driver-20260102030405-0001"
    master.has_worker, master.commands[driver] = True, TAG
    asked = manager(master)
    asked.with_tag(TAG)
    master.drivers[driver] = "DANCING"
    assert asked.with_tag(TAG)[0].state is AppState.FAILED


def test_an_application_stays_known_when_its_driver_is_gone(master: FakeMaster) -> None:
    master.add("app-2", tag=TAG)
    asked = manager(master)
    asked.with_tag(TAG)
    master.apps["app-2"]["state"] = "FINISHED"
    master.tags.clear()
    (found,) = asked.with_tag(TAG)
    assert found.state is AppState.SUCCEEDED
    another = manager(master)
    assert another.with_tag(TAG) == []
    another.learn_from(asked)
    assert another.with_tag(TAG) == [found]


@pytest.mark.parametrize("token", ["t0ken", None])
def test_a_kill_comes_with_the_token_of_the_page(master: FakeMaster, token: str | None) -> None:
    master.token = token
    master.add("app-2", tag=TAG)
    asked = manager(master)
    asked.kill(asked.with_tag(TAG)[0])
    assert asked.with_tag(TAG)[0].state is AppState.KILLED


def test_a_master_that_kills_nothing_is_told_of(master: FakeMaster) -> None:
    master.kills = False
    master.add("app-2", tag=TAG)
    asked = manager(master)
    (found,) = asked.with_tag(TAG)
    with pytest.raises(ManagerError, match="killEnabled"):
        asked.kill(found)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_bad_answer_is_none(master: FakeMaster, trouble: str) -> None:
    master.trouble = trouble
    with pytest.raises(ManagerError):
        manager(master).with_tag(TAG)


@pytest.mark.parametrize("status", ["STANDBY", "RECOVERING", "COMPLETING_RECOVERY"])
def test_a_master_that_is_not_alive_knows_nothing(master: FakeMaster, status: str) -> None:
    master.status = status
    with pytest.raises(ManagerUnreachableError, match="ALIVE"):
        manager(master).with_tag(TAG)


def test_of_two_masters_the_one_that_is_alive_is_asked(master: FakeMaster) -> None:
    with FakeMaster() as standby:
        standby.status = "STANDBY"
        master.add("app-2", tag=TAG)
        assert [each.id for each in manager(standby, master).with_tag(TAG)] == ["app-2"]


def test_nobody_knows_what_a_silent_page_would_have_said(master: FakeMaster) -> None:
    # Of another cluster: the right one may be the silent one.
    with FakeMaster(url="spark://elsewhere:7077") as other:
        master.trouble = "500"
        with pytest.raises(ManagerUnreachableError):
            manager(master, other).with_tag(TAG)


def test_a_silent_page_does_not_matter_if_the_other_is_the_one_that_is_meant(
    master: FakeMaster,
) -> None:
    with FakeMaster() as dead:
        dead.trouble = "500"
        assert manager(dead, master).with_tag(TAG) == []


@pytest.mark.parametrize("url", ["spark://elsewhere:7077", "spark://h:7078"])
def test_another_cluster_s_master_knows_nothing_of_ours(url: str) -> None:
    with FakeMaster(url=url) as other:
        other.add("app-2", tag=TAG)
        asked = manager(other)
        with pytest.raises(ManagerUnreachableError, match=f"is of {MASTER}, only of {url}"):
            asked.with_tag(TAG)


def test_a_master_may_call_itself_otherwise_than_a_task_does(master: FakeMaster) -> None:
    # The page is on the host that the task names.
    master.master_url = "spark://some-inner-name:7077"
    assert manager(master, url="spark://127.0.0.1:7077").with_tag(TAG) == []
    assert manager(master, url="spark://a:1,SOME-inner-name:7077").with_tag(TAG) == []


def test_of_two_masters_on_one_host_the_port_tells_which_is_meant(master: FakeMaster) -> None:
    master.master_url = "spark://127.0.0.1:7078"
    with pytest.raises(ManagerUnreachableError, match="only of"):
        manager(master, url="spark://127.0.0.1:7077").with_tag(TAG)


def test_a_state_that_nobody_knows_is_no_answer(master: FakeMaster) -> None:
    master.add("app-1", state="DANCING")
    with pytest.raises(ManagerUnreachableError, match="DANCING"):
        manager(master).with_tag(TAG)

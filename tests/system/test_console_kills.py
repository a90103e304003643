"""Pages that are open while the daemons below them are killed: at the end they show the tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from operations.daemons import Kind
from tests.system.browser import Visitor, chromium
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.kills_daemons

SESSION_SECONDS = 8
KINDS = (Kind.API, Kind.MASTER, Kind.WORKER)
ROUNDS = 2
WATCHED = 5
RUNS = WATCHED + 7 * (ROUNDS * len(KINDS) + 1)
_STALE = """async () => {
  const answer = await fetch(location.href, { cache: "no-store" });
  const made = new DOMParser().parseFromString(await answer.text(), "text/html");
  const text = (each) => each && each.textContent.replace(/\\s+/g, " ").trim();
  const state = (each) => each.getAttribute("href") || `${each.className.baseVal} ${each.getAttribute("points") || each.dataset.ends}`;
  const states = (each) => each && [...each.querySelectorAll("use, polyline, .mark, [data-ends]")].map(state);
  return [...document.querySelectorAll("[data-part]")].filter((part) => {
    const fresh = made.querySelector(`[data-part="${part.dataset.part}"]`);
    return text(part) !== text(fresh) || String(states(part)) !== String(states(fresh));
  }).map((part) => part.dataset.part);
}"""
"""The parts of a page that do not look as if it were loaded now."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    home = tmp_path_factory.mktemp("console-kills")
    with private_cluster(home, ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS)) as made:
        made.start(masters=1, workers=1, apis=1, slots=WATCHED + 6)
        yield made


def _twenty_tasks(gate: Path | None = None) -> list[dict[str, object]]:
    """Four after one, four times, and a last one after three; half of them are behind the gate."""
    tasks = [a_task("t0", "sleep 0.1")]
    for rank in range(4):
        before = f"t{rank * 4}"
        tasks += [a_task(f"t{rank * 4 + each}", "sleep 0.1", before) for each in range(1, 5)]
    if gate is not None:
        tasks[8] = a_task("t8", f"until [ -e {gate} ]; do sleep 0.05; done", "t4")
    return [*tasks, *(a_task(f"t{each}", "true", "t13", "t14", "t15") for each in range(17, 20))]


@pytest.mark.slow
def test_ten_pages_show_what_the_tables_say_after_kills_of_all_that_is_below_them(
    cluster: PrivateCluster, browser: Browser
) -> None:
    gate = cluster.home / "gate"
    definition = cluster.define("storm", _twenty_tasks())
    gated = cluster.define("watched", _twenty_tasks(gate))
    watched = [cluster.begin(gated) for _ in range(WATCHED)]
    (port,) = cluster.ports(Kind.API)
    ada = Visitor(browser, f"http://127.0.0.1:{port}", cluster.told("console", "--print")["url"])
    views = ("graph", "timeline", "list", "graph", "list")
    places = [
        *("/", "/runs", "/runs?state=SUCCESS", f"/definitions/{definition}?view=grid"),
        f"/definitions/{definition}?view=runs",
        *(f"/runs/{run}?view={view}" for run, view in zip(watched, views, strict=True)),
    ]
    pages = [ada.page, *(ada.context.new_page() for _ in places[1:])]
    for page, place in zip(pages, places, strict=True):
        page.goto(ada.base + place)
        page.evaluate("window.wasLoadedOnce = true")
    _storm(cluster, definition)
    # The rest happens while nobody tells the pages of it.
    (port,) = cluster.ports(Kind.API)
    cluster.kill(Kind.API, port)
    _put(cluster, definition)
    gate.touch()
    until(lambda: _succeeded(cluster, "t_ds_process_instance") == RUNS)
    cluster.start_again(Kind.API, port)

    states = (
        "SELECT p.state, t.state, count(*) FROM t_ds_process_instance p"
        " JOIN t_ds_task_instance t ON t.process_instance_id = p.id AND t.flag = 1 GROUP BY 1, 2"
    )
    assert cluster.rows(states) == [(7, 7, RUNS * 20)]
    for page, place in zip(pages, places, strict=True):
        until(lambda page=page: _stale(page) == [], within=60)
        assert page.evaluate("window.wasLoadedOnce"), place
    for page, run in zip(pages[5:], watched, strict=True):
        ada.sees("[data-part=state]", "success", page)
        ada.sees("[data-part=facts]", "20 success", page)
        assert page.url == f"{ada.base}{places[pages.index(page)]}", run
    ada.sees("[data-part=runs]", "success", pages[1])
    assert pages[1].locator("[data-part=runs] tr[data-instance], [data-part=runs] tbody tr").count()
    # A server that is away is an error of the network, and nothing else is one.
    assert [each for each in ada.faults if "net::ERR_" not in each] == []
    ada.close()


def _stale(page: Page) -> list[str]:
    found: list[str] = page.evaluate(_STALE)
    return found


def _storm(cluster: PrivateCluster, definition: int) -> None:
    """Kill each daemon in turns amid new runs; it is back at once, and the work gets on."""
    choose = random.Random(20130101)
    for _ in range(ROUNDS):
        for kind in choose.sample(KINDS, len(KINDS)):
            before = _succeeded(cluster, "t_ds_task_instance")
            _put(cluster, definition)
            (port,) = cluster.ports(kind)
            cluster.kill(kind, port)
            cluster.start_again(kind, port)
            until(lambda before=before: _succeeded(cluster, "t_ds_task_instance") > before)


def _put(cluster: PrivateCluster, definition: int) -> None:
    """Begin as many runs as there are to be between two kills."""
    runs = (RUNS - WATCHED) // (ROUNDS * len(KINDS) + 1)
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id)"
        f" SELECT 0, {definition} FROM generate_series(1, {runs})"
    )


def _succeeded(cluster: PrivateCluster, table: str) -> int:
    ((count,),) = cluster.rows(f"SELECT count(*) FROM {table} WHERE state = 7")
    return int(count)

"""The console in a browser: each page looked at by every means, and journeys without a mouse."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from common.model.states import ProcessState
from operations.daemons import Kind
from tests.system.browser import (
    NARROW,
    OPENED,
    PICTURE,
    UPRIGHT,
    WIDE,
    ZOOMED,
    Visitor,
    accessibility_faults,
    chromium,
)
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.system.console_contents import a_failed_run, a_month_of_runs, add_examples, places
from tests.system.console_editing import creates_each_type, saves_what_is_typed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = os.environ.get("ORCAFLOW_PICTURES")
"""The folder for the pictures of the documents; None leaves those as they are."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """A whole cluster with something on each page."""
    with private_cluster(tmp_path_factory.mktemp("console")) as made:
        made.start(apis=1)
        add_examples(made)
        yield made


@pytest.fixture(scope="module")
def base(cluster: PrivateCluster) -> str:
    (port,) = cluster.ports(Kind.API)
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def visits(
    browser: Browser, cluster: PrivateCluster, base: str
) -> Iterator[Callable[..., Visitor]]:
    """Makes somebody who is logged in; at the end none of their pages has done what none may."""
    made: list[Visitor] = []

    def visit(**how: Any) -> Visitor:
        link = cluster.told("console", "--print")["url"]
        made.append(Visitor(browser, base, link, **how))
        return made[-1]

    yield visit
    faults = [fault for each in made for fault in each.faults]
    for each in made:
        each.close()
    assert faults == []


@pytest.fixture(scope="module")
def failed(cluster: PrivateCluster) -> int:
    return a_failed_run(cluster)


@pytest.fixture(scope="module")
def month(cluster: PrivateCluster) -> int:
    return a_month_of_runs(cluster)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_show_what_they_are_for(
    visits: Callable[..., Visitor],
    cluster: PrivateCluster,
    failed: int,
    month: int,
    *,
    scheme: str,
    tmp_path: Path,
) -> None:
    """With `ORCAFLOW_PICTURES=docs` they are those of the documents."""
    ada = visits(color_scheme=scheme, reduced_motion="reduce")
    ((definition,),) = cluster.rows(
        "SELECT process_definition_id FROM t_ds_process_instance WHERE id = %s", month
    )
    ada.open(f"/runs/{month}?task=join")
    ada.sees(".node.chosen title", "join: running")
    folder = Path(PICTURES or tmp_path)
    for name, place, told in (
        ("overview", "/", "figures"),
        ("run", f"/runs/{month}?task=join", "clean_weather"),
        ("grid", f"/definitions/{definition}", "worst_routes"),
        ("calendar", "/schedules/calendar", "flights"),
    ):
        ada.resize(PICTURE)
        ada.open(place)
        ada.sees("main", told)
        ada.page.screenshot(path=folder / f"console-{name}-{scheme}.png")
        ada.resize(NARROW)
        ada.page.screenshot(path=tmp_path / f"narrow-{name}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_used_by_everybody(
    visits: Callable[..., Visitor], cluster: PrivateCluster, failed: int, scheme: str
) -> None:
    ada = visits(color_scheme=scheme, reduced_motion="reduce")
    wrong: dict[str, object] = {}
    for place in places(cluster, failed):
        ada.resize(WIDE)
        assert ada.open(place) == 200, place
        for fault in accessibility_faults(ada.page):
            wrong[f"{place}: {fault}"] = True
        for size in (ZOOMED, NARROW):
            ada.resize(size)
            if ada.overflow() > 0:
                wrong[f"{place} at {size[0]}"] = ada.overflow()
        turning = ada.page.evaluate("document.getAnimations().length")
        if turning:
            wrong[f"{place} moves"] = turning
    assert wrong == {}


def test_pages_in_chinese_hold_and_can_be_used_by_everybody(
    visits: Callable[..., Visitor], cluster: PrivateCluster, failed: int
) -> None:
    ada = visits(locale="zh-CN", reduced_motion="reduce")
    wrong: dict[str, object] = {}
    for place in places(cluster, failed):
        for size in (NARROW, WIDE):
            ada.resize(size)
            assert ada.open(place) == 200, place
            assert ada.page.evaluate("document.documentElement.lang") == "zh-CN"
            ada.page.evaluate(OPENED)
            if ada.overflow() > 0:
                wrong[f"{place} at {size[0]}"] = ada.overflow()
            # A word of two signs or more that stands one below the other can't be read.
            for word in ada.page.evaluate(UPRIGHT):
                wrong[f"{place} at {size[0]}: {word}"] = True
        if place.startswith("/runs/"):
            for fault in accessibility_faults(ada.page):
                wrong[f"{place}: {fault}"] = True
    assert wrong == {}


def test_a_language_is_chosen_by_keyboard_and_an_open_page_keeps_its_own(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define("spoken", [a_task("sleeps", "sleep 600")])
    run = cluster.begin(definition)
    ada = visits(locale="zh-CN")
    ada.open(f"/runs/{run}?view=list")
    ada.sees("[data-part=state]", "正在运行")
    other = ada.context.new_page()
    other.goto(f"{ada.base}/runs/{run}")
    ada.press("form.language button")
    assert ada.place() == f"/runs/{run}?view=list"
    ada.sees("[data-part=state]", "running")
    assert cluster.orcaflow("instance", "stop", str(run)).returncode == 0
    ada.sees("[data-part=state]", "stopped")
    ada.sees("[data-part=facts]", "1 killed")
    ada.sees("[data-part=state]", "停止", other)
    ada.sees("[data-part=facts]", "被终止 1", other)
    other.keyboard.press("Control+k")
    other.keyboard.type("定")
    ada.sees('.palette [aria-selected="true"]', "工作流定义", other)


@pytest.mark.parametrize("has_scripts", [True, False])
def test_all_parts_and_the_language_are_in_sight_on_a_low_screen(
    visits: Callable[..., Visitor], *, has_scripts: bool
) -> None:
    ada = visits(java_script_enabled=has_scripts)
    ada.resize(PICTURE)
    ada.open("/")
    side = ada.page.locator(".side")
    users, language = side.locator('a[href="/users"]'), side.locator(".language button")

    def bottom(of: Any) -> float:
        box = of.bounding_box()
        assert box is not None
        return float(box["y"] + box["height"])

    assert not users.is_visible()
    assert bottom(language) <= PICTURE[1]
    side.locator("summary").click()
    assert bottom(users) < bottom(language) <= PICTURE[1]
    with ada.page.expect_navigation():
        users.click()
    # The heading of the part that is open is not folded.
    assert users.is_visible()
    assert users.get_attribute("aria-current") == "page"


def test_a_failed_run_is_found_explained_and_mended_by_keyboard_alone(
    visits: Callable[..., Visitor], cluster: PrivateCluster, failed: int
) -> None:
    ada = visits()
    ada.press(f'[data-part="needing"] a[href="/runs/{failed}"]')
    ada.tab_to("[data-drawing]")
    lit = "document.querySelector('.edge.lit').getAttribute('d').split('M').length - 1"
    for _ in range(2):
        ada.page.keyboard.press("ArrowRight")
        # All that is before and behind it.
        assert ada.page.evaluate(lit) == 2
    with ada.page.expect_navigation():
        ada.page.keyboard.press("Enter")
    assert "task=clean" in ada.place()
    ada.sees("[data-log]", "no such column: amout")
    assert "3" in ada.page.inner_text(".panel dl")
    ada.press('form[action$="/recover"] button')
    # Nothing is loaded again by hand.
    ada.sees("[data-part=state]", "success")
    assert cluster.state_of(failed) == ProcessState.SUCCESS
    ada.sees('[data-part="facts"]', "3 success")
    looks = ada.page.eval_on_selector_all(".node title", "all => all.map(each => each.textContent)")
    assert looks == ["land: success", "clean: success", "report: success"]


def test_why_a_definition_waits_is_found_in_four_steps(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    ((definition,),) = cluster.rows("SELECT id FROM t_ds_process_definition WHERE name = 'morning'")
    run = cluster.begin(definition)
    ada = visits()
    ada.press(f'[data-part="live"] a[href="/runs/{run}"]')
    assert re.search(r"nightly", ada.page.inner_text(".panel"))
    ada.confirm("stop")
    assert cluster.await_end(run) == ProcessState.STOP


def test_pages_work_without_scripts(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    run = cluster.begin(cluster.define("long", [a_task("sleeps", "sleep 600")]))
    ada = visits(java_script_enabled=False)
    assert ada.open(f"/runs/{run}") == 200
    ada.page.click('.ask summary[data-verb$="/stop"]')
    ada.page.click('form[action$="/stop"] button')
    assert ada.place() == f"/runs/{run}"
    assert cluster.await_end(run) == ProcessState.STOP
    assert ada.open(f"/runs/{run}") == 200
    assert "stopped" in ada.page.inner_text("[data-part=state]")


def test_a_run_that_is_begun_twice_is_one(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define("once", [a_task("says", "true")])
    ada = visits()
    ada.open(f"/definitions/{definition}/run")
    ada.press("form.form button")
    begin = 'form[action$="/run"] button'
    # No wait for a navigation: the second click may abort that of the first one.
    ada.page.dblclick(begin)
    ada.sees("[data-part=state]", "success")
    run = ada.place()
    ada.page.go_back()
    ada.press(begin)
    assert ada.place() == run
    assert cluster.rows(
        "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s", definition
    ) == [(1,)]


def test_a_page_that_is_open_says_that_its_session_or_its_definition_is_gone(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define("leaving", [a_task("says", "true")])
    eve = visits()
    eve.open(f"/definitions/{definition}/edit")
    for verb in ("offline", "delete"):
        assert cluster.orcaflow("definition", verb, "leaving").returncode == 0
    eve.press('button[name="act"][value="save"]')
    eve.sees("main", f"no process definition {definition}")
    run = cluster.begin(cluster.define("staying", [a_task("sleeps", "sleep 600")]))
    eve.open(f"/runs/{run}")
    cluster.rows("DELETE FROM t_ds_session")
    assert cluster.orcaflow("instance", "stop", str(run)).returncode == 0
    eve.page.wait_for_url(re.compile("/login"))
    assert cluster.await_end(run) == ProcessState.STOP
    # A browser notes the answer of what is missing.
    eve.faults[:] = [each for each in eve.faults if "404 (Not Found)" not in each]


def test_a_browser_whose_clock_is_a_day_off_shows_what_happens(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    gate = cluster.home / "clock-gate"
    script = f"until [ -e {gate} ]; do sleep 0.05; done"
    run = cluster.begin(cluster.define("elsewhen", [a_task("waits", script)]))
    ada = visits()
    ada.page.clock.set_system_time(datetime.now(UTC) + timedelta(days=1))
    ada.open(f"/runs/{run}")
    ada.sees("[data-part=state]", "running")
    gate.touch()
    ada.sees('[data-part="facts"]', "1 success")


def test_what_happens_is_on_the_screen_without_a_reload(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    ada = visits()
    tasks = [a_task(f"t{each}", "true", *([f"t{each - 1}"] if each else [])) for each in range(5)]
    run = cluster.begin(cluster.define("seen", tasks))
    row = f'[data-part="ended"] tr:has(a[href="/runs/{run}"])'
    ada.sees(row, "success")


def test_what_happens_leaves_zoom_focus_and_place_as_they_are(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    tasks = [a_task("waits", "sleep 600"), *(a_task(f"t{each}", "true") for each in range(9))]
    run = cluster.begin(cluster.define("kept", tasks))
    ada = visits()
    ada.open(f"/runs/{run}")
    ada.sees('[data-part="facts"]', "9 success")
    ada.tab_to("[data-drawing]")
    for key in ("+", "+", "ArrowDown", "ArrowDown"):
        ada.page.keyboard.press(key)
    seen = """[document.activeElement.dataset.name, document.querySelector("[data-drawing] svg").width.baseVal.value]"""
    before = ada.page.evaluate(seen)
    assert before[0] is not None
    assert cluster.orcaflow("instance", "stop", str(run)).returncode == 0
    ada.sees('.node[data-name="waits"] title', "killed")
    ada.sees('[data-part="facts"]', "9 success, 1 killed")
    assert ada.page.evaluate(seen) == before
    glyphs = ada.page.eval_on_selector_all(
        ".node .mark",
        "all => all.map(each => document.querySelector("
        "getComputedStyle(each).markerStart.slice(5, -2)).id)",
    )
    assert Counter(glyphs) == {"m-success": 9, "m-killed": 1}


def test_one_box_finds_definitions_runs_and_verbs_by_keys(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define("looked-for", [a_task("sleeps", "sleep 600")])
    run = cluster.begin(definition)
    ada = visits()
    keys = ada.page.keyboard

    def choose(text: str, name: str) -> None:
        keys.press("Control+k")
        keys.type(text)
        ada.sees('.palette [aria-selected="true"]', name)
        focused = "document.activeElement.getAttribute('aria-activedescendant')"
        assert ada.page.evaluate(focused) == "palette-0"

    choose("oked-f", "looked-for")
    assert accessibility_faults(ada.page) == []
    with ada.page.expect_navigation():
        keys.press("Enter")
    assert ada.place() == f"/definitions/{definition}"
    choose(f"{run}", f"Run {run}")
    with ada.page.expect_navigation():
        keys.press("Enter")
    ada.tab_to("[data-drawing]")
    keys.press("/")
    keys.type("lee")
    ada.sees('.palette [aria-selected="true"]', "sleeps")
    keys.press("Enter")
    assert ada.page.evaluate("document.activeElement.dataset.name") == "sleeps"
    choose("stop", "Stop…")
    keys.press("Enter")
    assert ada.page.evaluate("document.activeElement.textContent") == "Stop"
    with ada.page.expect_navigation():
        keys.press("Enter")
    ada.sees("[data-part=state]", "stopped")
    keys.press("Control+k")
    keys.press("Escape")
    assert ada.page.locator(".palette[open]").count() == 0


def test_a_run_is_begun_by_keyboard_alone_with_its_parameters(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    params = [
        {"prop": name, "direct": "IN", "type": kind, "value": "0"}
        for name, kind in (("day", "DATE"), ("count", "INTEGER"))
    ]
    tasks = [a_task("says", "echo ${count} of ${day}")]
    definition = cluster.define("typed", json.dumps({"globalParams": params, "tasks": tasks}))
    ada = visits()
    ada.open(f"/definitions/{definition}")
    ada.press(f'a[href="/definitions/{definition}/run"]')
    ada.tab_to('[name="param:day"]')
    ada.page.keyboard.type("01022013")
    ada.tab_to('[name="param:count"]')
    ada.page.keyboard.type("831")
    ada.press("form.form button")
    assert "2013-01-02" in ada.page.inner_text("main table")
    ada.press('form[action$="/run"] button')
    ada.sees("[data-part=state]", "success")
    ada.open(f"{ada.place()}?task=says")
    ada.sees("[data-log]", "831 of 2013-01-02")


def test_the_tour_of_the_readme_is_done_by_keyboard_alone(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    readme = Path("README.md").read_text(encoding="utf-8")
    hello = readme.partition("<!-- file: hello.json -->\n```json\n")[2].partition("```")[0]
    ada = visits()
    keys = ada.page.keyboard
    for link in ("/definitions", "/definitions/new", "/projects/1/edit", "?view=document"):
        ada.press(f'a[href="{link}"]')
    ada.tab_to('textarea[name="content"]')
    keys.press("Control+a")
    keys.insert_text(hello)
    until(lambda: ada.page.inner_text("[data-status]") == "saved")
    ada.press('a[href="/projects/1/propose"]')
    ada.press('button[formaction$="/publish"]')
    ada.press('.crumbs a:not([href="/definitions"])')
    ada.press('.verbs a[href$="/run"]')
    ada.press("form.form button")
    ada.press('form[action$="/run"] button')
    run = ada.place()
    ada.sees('[data-part="facts"]', "3 success")
    ada.tab_to("[data-drawing]")
    for _ in ("extract", "transform", "load"):
        keys.press("ArrowRight")
    with ada.page.expect_navigation():
        keys.press("Enter")
    assert ada.place().endswith("task=load")
    ada.sees("[data-log]", "499500")
    ada.press('.panel a[href$="/log"]')
    ada.sees("[data-whole]", "499500")
    ada.press('.crumbs a[href$="task=load"]')
    ada.press('.panel a[href$="/script"]')
    ada.sees("main", "spark.range(1000).selectExpr('sum(id)').show()")
    ada.sees("main", f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}")
    ada.press('.side a[href="/runs"]')
    ada.press(f'a[href="{run}"]')
    ada.confirm("rerun")
    attempts = (
        "SELECT count(*) FROM t_ds_task_instance WHERE process_instance_id = %s AND state = 7"
    )
    until(lambda: cluster.rows(attempts, int(run.removeprefix("/runs/"))) == [(6,)])
    ada.sees("[data-part=state]", "success")


def test_a_log_is_followed_to_its_end_and_read_from_its_begin(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    gate = cluster.home / "log-gate"
    script = f"seq -f 'line %06g' 100000; until [ -e {gate} ]; do sleep 0.05; done; echo the end"
    run = cluster.begin(cluster.define("wordy", [a_task("says", script)]))
    ada = visits()
    ada.open(f"/runs/{run}?task=says")
    ada.sees("[data-log]", "line 100000")
    beside = ada.page
    ada.page = ada.context.new_page()
    ada.open(f"/runs/{run}?task=says")
    ada.press('a[href$="/log"]')
    ada.sees("[data-whole]", "line 100000")
    assert ada.page.locator('[data-follow-log][aria-pressed="true"]').count() == 1
    # Whoever reads what is above is not pulled down again, and the page keeps few pieces.
    ada.page.evaluate("document.querySelector('[data-whole]').scrollTop = 0")
    ada.sees("[data-whole]", "line 099000")
    assert ada.page.locator('[data-follow-log][aria-pressed="false"]').count() == 1
    ada.tab_to("[data-begin]")
    ada.page.keyboard.press("Enter")
    ada.sees("[data-whole]", "line 000001")
    for _ in range(12):
        last = ada.page.inner_text("[data-whole]").rstrip().rpartition("\n")[2]
        pane = "document.querySelector('[data-whole]')"
        ada.page.evaluate(f"{pane}.scrollTop = {pane}.scrollHeight")
        until(lambda last=last: not ada.page.inner_text("[data-whole]").rstrip().endswith(last))
    assert ada.page.locator("[data-whole] pre > span").count() == 8
    lines = [int(each) for each in ada.page.inner_text("[data-whole]").split()[1::2]]
    assert lines == [*range(lines[0], lines[-1] + 1)]
    ada.tab_to("[data-end]")
    ada.page.keyboard.press("Enter")
    ada.sees("[data-whole]", "line 100000")
    # The task ends before the picture comes that would show its last line.
    ada.page.evaluate(
        "const now = requestAnimationFrame;"
        "window.requestAnimationFrame = (show) => setTimeout(() => now(show), 1500)"
    )
    gate.touch()
    ada.sees("[data-whole]", "the end")
    ada.sees("[data-log]", "the end", beside)
    until(lambda: not ada.page.locator("[data-follow-log]").is_visible())


def test_a_schedule_is_made_by_keyboard_alone_with_its_fires_beforehand(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define("clocked", [a_task("says", "true")])
    ada = visits()
    ada.open(f"/definitions/{definition}?view=schedules")
    ada.press(f'a[href="/schedules/new?definition={definition}"]')
    keys = ada.page.keyboard
    ada.tab_to('[name="cron"]')
    keys.type("0 30 2 * * ")
    # A line that is not whole yet is told, and nothing else on the page moves.
    ada.sees("[data-part=look]", "found 5")
    keys.type("?")
    ada.tab_to('[name="zone"]')
    keys.press("Control+a")
    keys.type("America/New_York")
    ada.tab_to('[name="from"]')
    keys.press("Control+a")
    keys.type("2040-03-11")
    ada.sees("[data-part=look]", "at 02:30:00 every day")
    ada.sees("[data-part=look]", "2040-03-11 03:30:00-04:00")
    ada.press("button.primary")
    ada.sees("h1", "Schedule")
    ((line, zone),) = cluster.rows(
        "SELECT crontab, timezone_id FROM t_ds_schedules WHERE process_definition_id = %s",
        definition,
    )
    assert (line, zone) == ("0 30 2 * * ?", "America/New_York")


def test_the_grid_leads_to_the_task_that_failed(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    definition = cluster.define(
        "often", [a_task("reads", "true"), a_task("writes", "false", "reads")]
    )
    runs = [cluster.begin(definition) for _ in range(3)]
    for run in runs:
        assert cluster.await_end(run) == ProcessState.FAILURE
    ada = visits()
    ada.press('.side a[href="/definitions"]')
    ada.press(f'a[href="/definitions/{definition}"]')
    told = ada.page.locator("[data-task] svg")
    assert [each.get_attribute("aria-label") for each in told.all()] == [
        "reads: 3 success",
        "writes: 3 failed",
    ]
    ada.tab_to("[data-grid]")
    for key in ("ArrowDown", "ArrowLeft"):
        ada.page.keyboard.press(key)
    with ada.page.expect_navigation():
        ada.page.keyboard.press("Enter")
    assert ada.place() == f"/runs/{runs[1]}?task=writes"
    ada.open(f"/definitions/{definition}?only=failed")
    assert ada.page.locator("[data-task]").count() == 1


def test_ten_pages_of_one_browser_follow_what_happens(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    """A browser opens six connections to a server, and each stream would keep one."""
    tasks = [a_task("waits", "sleep 600"), a_task("ends", "true", "waits")]
    definition = cluster.define("followed", tasks)
    runs = [cluster.begin(definition) for _ in range(3)]
    ada = visits()
    pages = [ada.page, *(ada.context.new_page() for _ in range(9))]
    for place, page in enumerate(pages):
        page.goto(f"{ada.base}/runs/{runs[place % 3]}")
    for run in runs:
        assert cluster.orcaflow("instance", "stop", str(run)).returncode == 0
        assert cluster.await_end(run) == ProcessState.STOP
    for page in pages:
        ada.sees("[data-part=state]", "stopped", page)


def test_the_editor_saves_a_moment_after_somebody_stops_typing(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    saves_what_is_typed(visits(reduced_motion="reduce"), cluster)


def test_a_task_of_each_type_is_created_in_the_editor(
    visits: Callable[..., Visitor], cluster: PrivateCluster
) -> None:
    creates_each_type(visits(reduced_motion="reduce"), cluster)

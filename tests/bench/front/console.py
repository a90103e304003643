"""The console in Chromium: first paint of its pages, large graphs and grids, changes on the screen.

Each page is opened as somebody does who has never seen it, with nothing in the browser's cache. An
empty page of a bare server is opened in the same turn. A change is timed from the end in the task's
row, which the worker takes before it writes it, to the moment at which a page shows it.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tests.bench import cluster, definitions
from tests.bench.drawing import layered
from tests.bench.figures import Figure, Target, against_floor, percentile
from tests.bench.front.logs import large_log, loud_log
from tests.bench.front.server import Server, orcaflow, serving
from tests.bench.scale.history import fill
from tests.bench.stage import Stage
from tests.system.browser import launched, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_DEFINITIONS: Final = 50
_RUNS: Final = 1_000
_COLUMNS: Final = 25
_WATCHERS: Final = 20
_TASKS: Final = 20
_HEAD_START: Final = 10
"""The seconds in which all pages are opened before the first task ends."""
_LOUD_SECONDS: Final = 10
_PATIENCE_MS: Final = 120_000
_STATIC: Final = cluster.ROOT / "api" / "console" / "static"
_PAINT: Final = """() => new Promise((end) => {
  new PerformanceObserver((found) => {
    for (const each of found.getEntries()) {
      if (each.name === "first-contentful-paint") end(each.startTime);
    }
  }).observe({ type: "paint", buffered: true });
})"""
_DRAWN: Final = "new Promise((end) => requestAnimationFrame(() => requestAnimationFrame(end)))"
_WATCH: Final = """() => {
  window.seen = {};
  const look = () => {
    for (const title of document.querySelectorAll(".node title")) {
      const [name, word] = title.textContent.split(": ");
      if (word === "success") window.seen[name] ??= Date.now();
    }
  };
  new MutationObserver(look).observe(document.querySelector("main"),
    { subtree: true, childList: true, characterData: true, attributes: true });
}"""
_FRAMES: Final = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const next = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""
_INSTANCES: Final = """
INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type, executor_id,
    process_instance_json, start_time, end_time)
SELECT 'grid-' || run, %(definition)s, 7, 0, 1, %(json)s, now() - interval '1 hour' * run,
    now() - interval '1 hour' * run + interval '1 minute'
FROM generate_series(1, %(runs)s) AS run
"""
_ATTEMPTS: Final = """
INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, process_instance_id,
    task_json, state, flag, submit_time, start_time, end_time)
SELECT task ->> 'name', 'SHELL', run.process_definition_id, run.id, '{}', 7, 1, run.start_time,
    run.start_time, run.end_time
FROM t_ds_process_instance AS run, jsonb_array_elements(%(json)s::jsonb -> 'tasks') AS task
WHERE run.process_definition_id = %(definition)s
"""


def measure(
    stage: Stage, runs: int, *, history: int = _RUNS, columns: int = _COLUMNS
) -> list[Figure]:
    """Measure all of it; needs Chromium and Playwright."""
    why = missing()
    if why is not None:
        raise RuntimeError(why)
    many = _filled(stage, history)
    large = [_large(stage, seed, columns) for seed in range(1, runs + 1)]
    pages = ("/", "/definitions", f"/definitions/{many}", "/runs", "/schedules")
    paints: dict[str, list[float]] = {each: [] for each in ("empty", *pages)}
    usable: dict[str, list[float]] = {"run": [], "grid": []}
    with serving(stage) as server, launched() as browser, _empty() as empty:
        ada = _Reader(stage, server, browser)
        for place in (empty, *(ada.base + each for each in pages)):
            ada.paint_ms(place)  # The first of all meets a server that has made no page yet.
        for definition in large:
            paints["empty"].append(ada.paint_ms(empty))
            for place in pages:
                paints[place].append(ada.paint_ms(ada.base + place))
            run = stage.database.count(
                "SELECT max(id) FROM t_ds_process_instance WHERE process_definition_id = %s",
                (definition,),
            )
            usable["run"].append(ada.usable_ms(f"/runs/{run}"))
            usable["grid"].append(ada.usable_ms(f"/definitions/{definition}"))
        delays = [_delays_ms(stage, ada, f"seen-{each}") for each in range(runs)]
        log = large_log(stage, "console-large-log")
        ends = [ada.usable_ms(f"/tasks/{log}/log") for _ in range(runs)]
        followed = [_followed(stage, ada, f"loud-{each}") for each in range(runs)]
        requests = ada.requests(f"/definitions/{many}")
    slowest = max(pages, key=lambda each: percentile(paints[each], 50))
    return [
        *against_floor(
            "console.first_paint",
            "ms",
            paints[slowest],
            paints["empty"],
            limit=Target(limit=3.5),
            target=Target(limit=300),
        ),
        Figure(
            name="console.run_of_1000_tasks",
            unit="ms",
            values=tuple(usable["run"]),
            target=Target(limit=1000),
        ),
        Figure(
            name=f"console.grid_of_1000_tasks_and_{columns}_runs",
            unit="ms",
            values=tuple(usable["grid"]),
            target=Target(limit=1000),
        ),
        Figure(
            name="console.change_on_screen_p95",
            unit="ms",
            values=tuple(percentile(each, 95) for each in delays),
            target=Target(limit=200),
        ),
        Figure(
            name="console.log_end_on_screen",
            unit="ms",
            values=tuple(ends),
            target=Target(limit=500),
        ),
        Figure(
            name="console.following_frame_p95",
            unit="ms",
            values=tuple(frame for frame, _ in followed),
            target=Target(limit=100),
        ),
        Figure(
            name="console.following_heap",
            unit="MB",
            values=tuple(heap for _, heap in followed),
            target=Target(limit=150),
        ),
        Figure(
            name="console.files_gzipped",
            unit="KiB",
            values=(
                sum(len(gzip.compress(each.read_bytes())) for each in _STATIC.iterdir()) / 1024,
            ),
            target=Target(limit=60),
        ),
        Figure(name="console.requests", unit="", values=(float(requests),), target=Target(limit=6)),
    ]


class _Reader:
    """Somebody with an account, who opens each page with an empty cache."""

    def __init__(self, stage: Stage, server: Server, browser: Browser) -> None:
        self.base = f"http://127.0.0.1:{server.port}"
        self._browser = browser
        link = json.loads(orcaflow(stage, "console", "--print", "-o", "json"))["url"]
        context = browser.new_context()
        context.new_page().goto(f"{self.base}/console{link.partition('/console')[2]}")
        self._state: Any = context.storage_state()
        context.close()

    @contextmanager
    def page(self) -> Iterator[Page]:
        context = self._browser.new_context(storage_state=self._state)
        context.set_default_timeout(_PATIENCE_MS)
        try:
            yield context.new_page()
        finally:
            context.close()

    def paint_ms(self, url: str) -> float:
        with self.page() as page:
            page.goto(url)
            return float(page.evaluate(_PAINT))

    def usable_ms(self, place: str) -> float:
        """From the request until all is drawn and its scripts have run."""
        with self.page() as page:
            began = time.monotonic()
            page.goto(self.base + place, wait_until="load")
            page.evaluate(_DRAWN)
            return (time.monotonic() - began) * 1000

    def requests(self, place: str) -> int:
        asked: list[str] = []
        with self.page() as page:
            page.on("request", lambda request: asked.append(request.url))
            page.goto(self.base + place, wait_until="load")
        return len(asked)


def _filled(stage: Stage, history: int) -> int:
    """Make definitions with so many runs each; the id of one."""
    document = definitions.layered((1, 3, 3, 2, 1), "true", "true")
    ids = [stage.database.define(f"console-{each}", document) for each in range(_DEFINITIONS)]
    for each in ids:
        fill(stage, each, 1, history)
    return ids[0]


def _large(stage: Stage, seed: int, columns: int) -> int:
    """Make a definition of 1,000 tasks and about 2,500 edges, with so many runs; its id."""
    dag = layered(seed)
    document = json.dumps(
        {
            "tasks": [
                {
                    "name": each,
                    "type": "SHELL",
                    "params": {"rawScript": "true"},
                    "preTasks": list(dag.upstream[each]),
                }
                for each in dag.names
            ]
        }
    )
    definition = stage.database.define(f"console-large-{seed}", document)
    values: Mapping[str, object] = {"definition": definition, "json": document, "runs": columns}
    stage.database.execute(_INSTANCES, values)
    stage.database.execute(_ATTEMPTS, values)
    return definition


def _delays_ms(stage: Stage, ada: _Reader, name: str) -> Sequence[float]:
    """Watch a run on many pages; the time from each task's end until each page shows it."""
    tasks = [f"sleep {_HEAD_START}", *["sleep 0.2"] * _TASKS]
    document = json.dumps(
        {
            "tasks": [
                {
                    "name": f"t{place}",
                    "type": "SHELL",
                    "params": {"rawScript": script},
                    "preTasks": [f"t{place - 1}"] if place else [],
                }
                for place, script in enumerate(tasks)
            ]
        }
    )
    definition = stage.database.define(name, document)
    stage.database.start(definition)
    with ada.page() as first:
        pages = [first, *(first.context.new_page() for _ in range(_WATCHERS - 1))]
        first.goto(f"{ada.base}/definitions/{definition}?view=runs")
        while not first.query_selector('a[href^="/runs/"]:not([href="/runs"])'):
            first.reload()
        place = first.get_attribute('.rows a[href^="/runs/"]', "href")
        for page in pages:
            page.goto(f"{ada.base}{place}")
            page.evaluate(_WATCH)
        stage.database.await_ends(1, within=60)
        for page in pages:
            page.wait_for_selector('[data-part="state"] .success')
        seen = [page.evaluate("window.seen") for page in pages]
    attempts = stage.database.attempts(definition)
    ended = {task: end * 1000 for task, (_, end) in attempts.items()}
    return [page[task] - ended[task] for page in seen for task in page if task != "t0"]


def _followed(stage: Stage, ada: _Reader, name: str) -> tuple[float, float]:
    """Follow a task that writes 10,000 lines a second: the time of a frame, p95, and the heap.

    A page in which a frame takes so long is slow to answer to whoever scrolls or types.
    """
    attempt = loud_log(stage, name, _LOUD_SECONDS)
    with ada.page() as page:
        page.goto(f"{ada.base}/tasks/{attempt}/log")
        page.evaluate(_FRAMES)
        stage.database.await_ends(1, within=60)
        page.wait_for_selector("[data-follow-log]", state="hidden")
        frames: list[float] = page.evaluate("window.frames_ms")
        heap: int = page.evaluate("performance.memory.usedJSHeapSize")
    return percentile(frames, 95), heap / 1e6


@contextmanager
def _empty() -> Iterator[str]:
    """Serve a page with a word on it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>empty</title><p>empty"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""

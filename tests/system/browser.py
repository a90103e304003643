"""Chromium for tests, and pages that keep a record of what no page of the console may do.

Without Chromium or Playwright the tests are left out, and say so in one line; with
`ORCAFLOW_BROWSER=required` they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUMS: Final = ("chromium", "chromium-browser", "google-chrome")
WIDE: Final = (1360, 780)
PICTURE: Final = (1360, 700)
NARROW: Final = (390, 780)
ZOOMED: Final = (680, 390)
"""A wide window at 200 %."""
_IS_REQUIRED: Final = os.environ.get("ORCAFLOW_BROWSER") == "required"
_MOST_TABS: Final = 400
_PATIENCE_MS: Final = 60_000
_VIOLATIONS: Final = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
"""


def missing() -> str | None:
    """The reason that nothing can be tested in a browser here, with the cure; None without one."""
    if not any(map(shutil.which, CHROMIUMS)):
        return "no Chromium, so nothing is tested in a browser; apt-get install chromium"
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "no Playwright, so nothing is tested in a browser; pip install -e '.[browser]'"
    return None


OPENED = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
UPRIGHT = """
[...document.querySelectorAll("main *, nav *")].filter((each) => {
  if (each.childElementCount || each.closest("svg, option, .lines") || each.textContent.trim().length < 2) return false;
  const range = document.createRange();
  range.selectNodeContents(each);
  const lines = [...range.getClientRects()].filter((one) => one.width > 1);
  return lines.length > 1 && Math.max(...lines.map((one) => one.width)) < 24;
}).map((each) => each.textContent.trim())
"""
"""Words that are set sign below sign."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of a module of tests, which are left out without one."""
    why = missing()
    if why is not None:
        if _IS_REQUIRED:
            pytest.fail(why)
        pytest.skip(why)
    with launched() as browser:
        yield browser


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium without a window, where `missing` finds nothing."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUMS)))
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program,
            # Tests may run as root, where Chromium has no sandbox; they open the console alone.
            args=[
                "--no-sandbox",
                "--disable-quic",
                "--disable-background-networking",
                "--disable-component-update",
                "--font-render-hinting=none",
            ],
        )
        yield browser
        browser.close()


class Visitor:
    """Somebody with a browser of their own at the console."""

    def __init__(self, browser: Browser, base: str, link: str | None, **how: Any) -> None:
        self.base = base
        self.faults: list[str] = []
        """Errors, violations of the policy and requests to other hosts, as they came."""
        how.setdefault("viewport", {"width": WIDE[0], "height": WIDE[1]})
        self.context: BrowserContext = browser.new_context(**how)
        self.page: Page = self.context.new_page()
        self.page.add_init_script(_VIOLATIONS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", lambda request: self._asked(request.url))
        if link is not None:
            self.page.goto(link)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, url: str) -> None:
        if urlsplit(url).netloc != urlsplit(self.base).netloc:
            self.faults.append(f"request: {url}")

    def open(self, place: str) -> int:
        """Go to a page; its status."""
        answer = self.page.goto(self.base + place)
        assert answer is not None
        return answer.status

    def place(self) -> str:
        return self.page.url.removeprefix(self.base)

    def sees(self, selector: str, text: str, page: Page | None = None) -> None:
        """Wait until a part of the page, or of another, holds a text; nothing is loaded again by hand."""
        from playwright.sync_api import expect

        expect((page or self.page).locator(selector)).to_contain_text(text, timeout=_PATIENCE_MS)

    def tab_to(self, selector: str) -> None:
        """Wait for an element, then press Tab until it has the focus."""
        self.page.wait_for_selector(selector, state="attached", timeout=_PATIENCE_MS)
        for _ in range(_MOST_TABS):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        focused = self.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        shown = self.page.locator(selector).count()
        pytest.fail(f"Tab does not lead to {selector}: {shown} on the page, focus on {focused}")

    def press(self, selector: str) -> None:
        """Go to something by Tab, and press Enter, which leads to another page."""
        self.tab_to(selector)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def confirm(self, verb: str) -> None:
        """Go to a verb by Tab, open what it says, and go on to its button."""
        self.tab_to(f'.ask summary[data-verb$="/{verb}"]')
        self.page.keyboard.press("Enter")
        self.press(f'form[action$="/{verb}"] button')

    def resize(self, size: tuple[int, int]) -> None:
        self.page.set_viewport_size({"width": size[0], "height": size[1]})

    def overflow(self) -> int:
        """The pixels by which the page is wider than its window."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def close(self) -> None:
        self.context.close()


def accessibility_faults(page: Page) -> list[str]:
    """The rules that axe finds broken, each with its place."""
    from axe_playwright_python.sync_playwright import Axe

    response = Axe().run(page).response
    assert response["passes"], "axe has looked at nothing"
    return [
        f"{rule['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for rule in response["violations"]
        for node in rule["nodes"]
    ]

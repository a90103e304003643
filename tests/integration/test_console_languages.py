"""The console in Chinese: every page once, and the choice of a language, which is kept and can lead nowhere."""

from __future__ import annotations

import html
import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
from babel.messages.pofile import read_po
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.console.languages import COOKIE, HEADER
from api.console.parts import HEADER as PARTS
from api.console.serving import PAGES
from api.cookies import COOKIE as SESSION
from operations.datasources import create_datasource
from operations.log_ins import csrf_token
from operations.session import Session
from tests.house.tree import ROOT
from tests.integration.api_worlds import worlds
from tests.integration.console_visits import a_run, session_of

pytestmark = pytest.mark.usefixtures("at_console")
CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}
CATALOGUE = ROOT / "api" / "console" / "texts" / "zh_CN.po"
FORMS: dict[str, dict[str, str]] = {
    "/definitions/{id}/run/check": {"first": "2013-01-01", "last": "2013-01-03", "priority": "LOW"},
    "/schedules/simulate": {"days": "1", "offline_too": "yes"},
    "/tokens": {"name": "mine", "role": "viewer", "days": "1"},
    "/datasources/{id}/test": {},
}
"""The forms whose answer is a page, with their fields."""
VIEWS = {
    "/runs/{id}": ("graph", "timeline", "list", "parameters", "graph&task=a"),
    "/definitions/{id}": ("grid", "graph", "runs", "schedules"),
}


class Shown(HTMLParser):
    """The texts of a page that people see or hear, but for code, and for what operations tell."""

    told = ("code", "pre", "kbd", "style")
    spoken = ("title", "aria-label", "placeholder", "data-label", "data-none")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.language: str | None = None
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag == "html":
            self.language = given["lang"]
        is_told = {"cause", "reason"}.intersection((given.get("class") or "").split())
        # An option without a value is a code, and the switch names English in English.
        is_code = tag in self.told or (tag == "option" and "value" not in given)
        if is_told or is_code or given.get("lang") == "en":
            self._skipped.append(tag)
        self.texts += [given[each] for each in self.spoken if given.get(each)]

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and self._skipped[-1] == tag:
            self._skipped.pop()

    def handle_data(self, data: str) -> None:
        if not self._skipped and data.strip():
            self.texts.append(" ".join(data.split()))


@cache
def english() -> list[tuple[str, re.Pattern[str]]]:
    """The texts that Chinese tells in other words, each as what finds it within another."""
    with CATALOGUE.open("rb") as file:
        known = read_po(file, locale="zh_CN")
    found = []
    for each in known:
        forms = [each.id] if isinstance(each.id, str) else list(each.id)
        for text in filter(None, forms):
            plain = re.sub(r"</?\w+>", "", text)
            parts = [re.escape(part) for part in re.split(r"%\(\w+\)s", plain)]
            if plain in ("Master", "Worker") or not re.search(r"[A-Za-z]{2}", "".join(parts)):
                continue
            found.append((text, re.compile(r"(?<![\w.-])" + r"\S+".join(parts) + r"(?![\w.-])")))
    return found


def left_in_english(page: str) -> list[tuple[str, str]]:
    shown = Shown()
    # What the audit tells are words of commands and of operations.
    shown.feed(page if "<h1>审计</h1>" not in page else page.partition("<tbody>")[0])
    assert shown.language == "zh-CN"
    assert len(shown.texts) > 3
    return [
        (text, each) for each in shown.texts for text, pattern in english() if pattern.search(each)
    ]


@pytest.fixture
def root(at_console: None, client: TestClient, owner: Session) -> str:
    """The session of an administrator."""
    return session_of(client, owner, "root", None)


PROBLEMS = {
    "/cluster": 503,  # ZooKeeper is away.
    "/tasks/{id}/spark-ui": 409,  # The task has ended.
}
"""The statuses of pages that show a problem."""


def test_every_page_is_in_chinese_without_a_text_in_english(
    client: TestClient, root: str, owner: Session, db: Engine
) -> None:
    ours, _ = worlds(db)
    headers = {**CHINESE, "Cookie": f"{SESSION}={root}"}
    seen, wrong = 0, {}
    for page in PAGES:
        number = {"user": 1}.get(page.policy.thing or "", ours.objects.get(page.policy.thing or ""))
        place = page.path.format(id=number or 1, name=number)
        views = [f"?view={each}" for each in VIEWS.get(page.path, ())] or [""]
        if page.path == "/find":
            views = ["?q=%E5%AE%9A", "?q=ours", "?q=1"]
        if page.method != "GET" and page.path not in FORMS:
            continue
        for view in views:
            form = {"csrf_token": csrf_token(root), **FORMS.get(page.path, {})}
            answer = client.request(
                page.method,
                place + view,
                headers=headers,
                data=form if page.method == "POST" else None,
            )
            assert answer.status_code == PROBLEMS.get(page.path, 200), place
            assert answer.headers["content-language"] == "zh-CN"
            found = left_in_english(answer.text)
            if found:
                wrong[place + view] = found
            seen += 1
    assert wrong == {}
    assert seen > 30


def test_what_is_shown_to_everybody_is_in_chinese_too(client: TestClient, root: str) -> None:
    shown = client.get("/login", headers=CHINESE)
    wrong = client.post("/login", headers=CHINESE, data={"name": "none", "password": "none"})
    gone = client.get("/runs/2147483647", headers={**CHINESE, "Cookie": f"{SESSION}={root}"})
    for answer, status in ((shown, 200), (wrong, 401), (gone, 404)):
        assert answer.status_code == status
        assert left_in_english(answer.text) == []
    assert "用户名或密码错误。" in wrong.text
    # Errors of operations are told as they are.
    assert "<h1>未找到</h1>" in gone.text
    assert "there is no process instance 2147483647" in gone.text


def test_mistakes_in_forms_are_told_in_chinese(client: TestClient, ada: str, db: Engine) -> None:
    a_run(db, "flights")
    headers = {**CHINESE, "Cookie": f"{SESSION}={ada}"}
    form = {"csrf_token": csrf_token(ada), "parallelism": "0"}
    answer = client.post("/definitions/1/run/check", headers=headers, data=form)
    assert (answer.status_code, "应在 1 与 1000 之间" in answer.text) == (422, True)
    forged = client.post("/definitions/1/run/check", headers=headers, data={})
    assert (forged.status_code, "表单不属于此会话；请重新加载页面" in forged.text) == (403, True)


def test_a_language_that_is_chosen_is_kept_before_that_of_the_browser(client: TestClient) -> None:
    page = client.get("/login?next=/runs?state=FAILURE", headers=CHINESE)
    switch = re.findall(
        r'action="/language">\s*<input type="hidden" name="next" value="([^"]*)">\s*'
        r'<button class="quiet" name="language" value="([^"]*)" lang="en">English</button>',
        page.text,
    )
    assert switch == [("/login?next=/runs?state=FAILURE", "en")]
    form = {"next": html.unescape(switch[0][0]), "language": "en"}
    done = client.post("/language", data=form, headers=CHINESE)
    assert (done.status_code, done.headers["location"]) == (303, "/login?next=/runs?state=FAILURE")
    kept = done.headers["set-cookie"]
    assert kept.startswith(f"{COOKIE}=en; HttpOnly; Max-Age=31536000; Path=/; SameSite=lax; Secure")
    chosen = client.get("/login", headers={**CHINESE, "Cookie": f"{COOKIE}=en"})
    assert '<html lang="en">' in chosen.text
    assert 'lang="zh-CN">简体中文</button>' in chosen.text
    for cookie in ("fr", "", "../zh-CN"):
        other = client.get("/login", headers={**CHINESE, "Cookie": f"{COOKIE}={cookie}"})
        assert '<html lang="zh-CN">' in other.text


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("/runs/6?task=a", "/runs/6?task=a"),
        ("/", "/"),
        # The answers of forms lead to the page that has the form, or to one above it.
        ("/runs/6/stop", "/runs/6"),
        ("/definitions/4/run/check", "/definitions/4/run"),
        ("/schedules/simulate?days=1", "/schedules"),
        ("/tasks/7/force-success", "/"),
        ("/nothing/of/this", "/"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/runs\n/1", "/"),
        ("", "/"),
        ("runs", "/"),
        ("/login/../logout", "/login"),
        ("/api/v1/me", "/"),
    ],
)
def test_a_choice_leads_to_a_page_of_this_server_and_no_other(
    client: TestClient, target: str, place: str
) -> None:
    done = client.post("/language", data={"next": target, "language": "zh-CN"})
    assert (done.status_code, done.headers["location"]) == (303, place)
    assert done.headers["set-cookie"].startswith(f"{COOKIE}=zh-CN;")


def test_a_choice_of_another_site_or_of_no_language_is_not_kept(client: TestClient) -> None:
    form = {"next": "/", "language": "zh-CN"}
    for elsewhere in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = client.post("/language", data=form, headers=elsewhere)
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    for language in ("fr", "", "en\r\nSet-Cookie: a=b"):
        done = client.post("/language", data={"next": "/", "language": language})
        assert (done.status_code, "set-cookie" in done.headers) == (303, False)
    assert client.get("/language").status_code == 405


def test_an_open_page_keeps_its_language_whatever_is_chosen_since(
    client: TestClient, ada: str, db: Engine
) -> None:
    run = a_run(db, "flights")
    english = {"Cookie": f"{SESSION}={ada}; {COOKIE}=en"}
    whole = client.get(f"/runs/{run}", headers={**CHINESE, "Cookie": f"{SESSION}={ada}"})
    digests = dict(re.findall(r'data-part="(\w+)" data-digest="(\w+)"', whole.text))
    asked = {PARTS: ",".join(f"{name}={digest}" for name, digest in digests.items())}
    still = client.get(f"/runs/{run}", headers={**english, **asked, HEADER: "zh-CN"})
    assert still.json() == {"title": f"工作流实例 {run} 失败 · Orcaflow", "parts": {}}
    other = client.get(f"/runs/{run}", headers={**english, **asked})
    assert other.json()["title"] == f"Run {run} failed · Orcaflow"
    assert "success" in other.json()["parts"]["facts"]["html"]
    for answer, language in ((whole, "zh-CN"), (still, "zh-CN"), (other, "en")):
        assert answer.headers["content-language"] == language
        assert answer.headers["cache-control"] == "no-store"
        vary = {each.strip() for each in answer.headers["vary"].split(",")}
        assert {PARTS, HEADER, "Accept-Language", "Cookie"} <= vary
    assert "&#34;word&#34;:&#34;正在运行&#34;" in whole.text


def test_what_is_looked_for_is_found_in_both_languages(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    run = a_run(db, "flights")
    url = "postgresql+psycopg2://eve@127.0.0.1:1/dw"
    create_datasource(owner, "own", url, password="", type_=None, note=None, replace=False)

    def found(text: str) -> list[tuple[str, str, str]]:
        headers = {
            "Cookie": f"{SESSION}={ada}",
            "Accept": "application/json",
            HEADER: "zh-CN",
        }
        answer = client.get("/find", params={"q": text}, headers=headers)
        assert answer.headers["content-language"] == "zh-CN"
        return [
            tuple(each[key] for key in ("kind", "name", "told")) for each in answer.json()["items"]
        ]  # type: ignore[misc]

    assert found("数据") == [("页面", "数据源", ""), ("页面", "数据流", "")][::-1]
    assert found("streams") == [("页面", "数据流", "")]
    assert found(str(run))[0] == ("工作流实例", f"工作流实例 {run}", "flights 失败")
    assert found("flig") == [("工作流定义", "flights", "上线"), ("操作", "运行 flights…", "")]

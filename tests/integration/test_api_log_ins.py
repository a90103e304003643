"""Log-ins over HTTP: cookies, forged requests, guesses, sessions that end, and one-time links."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, func, select, update

from api.cookies import COOKIE, CSRF_HEADER
from api.policy import BASE
from common.model.states import ProcessState
from common.store import tables as t
from common.store.connect import engine
from operations import log_ins, passwords
from operations.live import WatchedTables
from operations.log_ins import LogInBlockedError
from operations.projects import create_project
from operations.session import Session
from operations.tokens import create_token
from operations.users import create_user, grant, set_enabled, set_password
from tests.builders import a_definition_json
from tests.conftest import MIGRATED
from tests.integration.cli_rows import a_definition, an_instance
from tests.integration.conftest import Cli

PASSWORD = "correct horse battery"
HERE = "testclient"
"""The address of `client`."""
CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
LOGIN, ME, SESSIONS = f"{BASE}/login", f"{BASE}/me", f"{BASE}/sessions"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that take no time: the parameters stand in each."""
    monkeypatch.setattr(passwords, "hashed", CHEAP.hash)
    monkeypatch.setattr(passwords, "is_outdated", lambda _: False)
    monkeypatch.setattr(log_ins, "_NOBODYS", CHEAP.hash("nobody's"))


@pytest.fixture
def ada(owner: Session) -> str:
    create_user(owner, "ada", is_admin=True, password=PASSWORD, tenant=None)
    return "ada"


def logged_in(client: TestClient, name: str = "ada", password: str = PASSWORD) -> dict[str, str]:
    """The headers of a page of the user; the client keeps no cookie of its own, which is Secure."""
    answer = client.post(LOGIN, json={"name": name, "password": password})
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    return {"Cookie": cookie, CSRF_HEADER: answer.json()["csrf_token"]}


def guessed(
    db: Engine, password: str, *, name: str = "ada", address: str = "10.0.0.1"
) -> str | None:
    return log_ins.log_in(db, name, password, address=address)


def audited(db: Engine) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    with db.connect() as connection:
        rows = connection.execute(
            select(line.action, line.outcome, line.user_name, line.detail)
            .where(line.object_type == "session")
            .order_by(line.id)
        )
        return [tuple(row) for row in rows]


def later(db: Engine, **columns: timedelta) -> None:
    """Let time pass for all sessions and links: their moments become so much older."""
    with db.begin() as connection:
        connection.execute(
            update(t.session).values(
                {name: t.session.c[name] - span for name, span in columns.items()}
            )
        )


def test_a_log_in_gives_a_cookie_that_no_script_reads_and_the_table_a_hash(
    client: TestClient, ada: str, db: Engine
) -> None:
    answer = client.post(LOGIN, json={"name": ada, "password": PASSWORD})
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert sorted(each.lower() for each in attributes) == [
        "httponly", "path=/", "samesite=lax", "secure"
    ]  # fmt: skip
    text = cookie.removeprefix(f"{COOKIE}=")
    assert len(text) == 43
    assert text not in answer.text
    with db.connect() as connection:
        (row,) = connection.execute(select(t.session)).all()
    assert len(row.id) == 64
    assert text not in str(row)
    page = {"Cookie": cookie}
    shown = client.get(ME, headers=page).json()
    assert (shown["name"], shown["csrf_token"]) == (ada, answer.json()["csrf_token"])
    assert audited(db) == [("session.begin", "done", ada, "by password")]
    # Whatever cookie a browser had, or was given by somebody else: each log-in has its own.
    again = client.post(LOGIN, json={"name": ada, "password": PASSWORD}, headers=page)
    assert again.headers["set-cookie"].partition(";")[0] != cookie
    for wrong in ({"Authorization": f"Bearer {text}"}, {"Cookie": f"{COOKIE}=of_{text}"}):
        assert client.get(ME, headers=wrong).status_code == 401


def test_a_change_by_a_cookie_takes_its_token_and_a_page_of_ours(
    client: TestClient, ada: str, db: Engine
) -> None:
    definition = a_definition(db, process_definition_json=a_definition_json("a"))
    run = an_instance(db, ProcessState.FAILURE, process_definition_id=definition)
    path = f"{BASE}/instances/{run}/rerun"
    page = logged_in(client)
    other = logged_in(client)
    bare = {"Cookie": page["Cookie"]}
    forged: list[dict[str, str]] = [
        bare,
        bare | {CSRF_HEADER: ""},
        bare | {CSRF_HEADER: "0" * 64},
        bare | {CSRF_HEADER: other[CSRF_HEADER]},
        page | {"Origin": "https://evil.example"},
        page | {"Origin": "null"},
        page | {"Origin": "http://127.0.0.1:9"},
        page | {"Sec-Fetch-Site": "cross-site"},
        page | {"Sec-Fetch-Site": "same-site"},
    ]
    for headers in forged:
        answer = client.post(path, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden"), headers
        assert "access-control-allow-origin" not in answer.headers
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.command)) == 0
    ours = {"Origin": "http://127.0.0.1:12345", "Sec-Fetch-Site": "same-origin"}
    assert client.post(path, headers=page | ours).status_code == 202
    # Reading takes the cookie alone, and a log-in is no change of anybody's.
    assert client.get(ME, headers=bare).status_code == 200
    given = {"name": ada, "password": PASSWORD}
    answer = client.post(LOGIN, json=given, headers={"Origin": "https://evil.example"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_a_wrong_password_and_an_unknown_user_are_answered_alike_and_cost_the_same_hash(
    client: TestClient, ada: str, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with db.begin() as connection:
        connection.execute(t.user.update().where(t.user.c.id == 1).values(state=0))
        old = {"user_name": "old", "user_password": "7ad2410b2f4c074479a8937a28a22b8f"}
        connection.execute(t.user.insert().values(tenant_id=1, user_type=1, **old))
    looked_at: list[str] = []
    matches = passwords.matches

    def counted(stored: str, password: str) -> bool:
        looked_at.append(stored)
        return matches(stored, password)

    monkeypatch.setattr(passwords, "matches", counted)
    tries = [(ada, "wrong"), ("nobody", PASSWORD), ("admin", "x"), ("old", "dolphinscheduler123"),
             ("", ""), (ada + " ", PASSWORD)]  # fmt: skip
    answers = []
    for name, password in tries:
        answers.append(client.post(LOGIN, json={"name": name, "password": password}))
        with db.begin() as connection:
            connection.execute(delete(t.login_failure))
    assert {each.status_code for each in answers} == {401}
    assert len({each.json()["detail"] for each in answers}) == 1
    assert len(looked_at) == len(tries)
    assert {each[:9] for each in looked_at} == {"$argon2id"}
    no_text = client.post(LOGIN, json={"name": "a\0da", "password": "x"})
    assert no_text.status_code == 422
    lines = audited(db)
    assert [line[:3] for line in lines] == [
        ("session.begin", "refused", "ada" if name == ada else "unknown") for name, _ in tries
    ]
    for body in (
        {"name": ada},
        {"name": ada, "password": "x" * 1025},
        {"name": "x" * 256, "password": "x"},
    ):
        assert client.post(LOGIN, json=body).status_code == 422


def blocked_until_now(db: Engine) -> None:
    """End all blocks."""
    with db.begin() as connection:
        connection.execute(update(t.login_failure).values(blocked_until=func.now()))


def failed_before(db: Engine, failures: int) -> None:
    """Let all subjects have this number of wrong tries behind them."""
    with db.begin() as connection:
        connection.execute(update(t.login_failure).values(failures=failures, blocked_until=None))


def test_five_wrong_passwords_block_a_user_at_an_address_on_every_server_and_double(
    client: TestClient, ada: str, db: Engine
) -> None:
    other = engine(db.url.render_as_string(hide_password=False))
    for _ in range(5):
        assert guessed(other, "wrong", address=HERE) is None
    other.dispose()
    answer = client.post(LOGIN, json={"name": "ADA", "password": PASSWORD})
    assert (answer.status_code, answer.json()["type"]) == (429, "/problems/too-many")
    assert 25 <= int(answer.headers["retry-after"]) <= 30
    waits = []
    for _ in range(3):
        blocked_until_now(db)
        assert guessed(db, "wrong", address=HERE) is None
        with pytest.raises(LogInBlockedError) as caught:
            guessed(db, PASSWORD, address=HERE)
        waits.append(caught.value.retry_after)
    assert [round(each / 60) for each in waits] == [1, 2, 4]
    blocked_until_now(db)
    # A right password makes good what was wrong before it, for the user at this address.
    assert guessed(db, PASSWORD, address=HERE) is not None
    assert guessed(db, "wrong", address=HERE) is None
    assert guessed(db, PASSWORD, address=HERE) is not None


def test_x85_wrong_passwords_at_a_shared_address_block_nobody_but_the_users_they_are_for(
    ada: str, owner: Session, db: Engine
) -> None:
    create_user(owner, "eve", is_admin=False, password=PASSWORD, tenant=None)
    for _ in range(5):
        assert guessed(db, "wrong", name="eve") is None
    for number in range(15):
        assert guessed(db, "wrong", name=f"user{number}") is None
    assert guessed(db, PASSWORD) is not None
    with pytest.raises(LogInBlockedError):
        guessed(db, PASSWORD, name="eve")
    # Nor does an attacker at one address block the user at another one.
    assert guessed(db, PASSWORD, name="eve", address="10.0.0.2") is not None


def test_x85_a_user_who_is_logged_in_at_an_address_is_not_blocked_by_others(
    ada: str, owner: Session, db: Engine
) -> None:
    create_user(owner, "eve", is_admin=False, password=PASSWORD, tenant=None)
    assert guessed(db, PASSWORD) is not None
    assert guessed(db, "wrong", name="x") is None
    assert guessed(db, "wrong", address="10.0.0.9") is None
    failed_before(db, 40)
    for name in ("x", "ada"):
        with db.begin() as connection:
            connection.execute(delete(t.login_failure).where(t.login_failure.c.subject.like("%@%")))
        place = "10.0.0.1" if name == "x" else "10.0.0.9"
        assert guessed(db, "wrong", name=name, address=place) is None
    # The address is blocked for users who are not logged in there, the user at other addresses.
    with pytest.raises(LogInBlockedError) as at_the_address:
        guessed(db, PASSWORD, name="eve")
    assert at_the_address.value.retry_after <= 10
    with pytest.raises(LogInBlockedError) as of_the_user:
        guessed(db, PASSWORD, address="10.0.0.3")
    assert of_the_user.value.retry_after <= 300
    assert guessed(db, PASSWORD) is not None


def test_x85_a_link_of_the_command_line_logs_in_whatever_is_blocked(
    ada: str, owner: Session, db: Engine
) -> None:
    for _ in range(5):
        assert guessed(db, "wrong", name="admin", address=HERE) is None
    made = log_ins.make_link(owner)
    assert made.user_name == "admin"
    assert log_ins.open_link(db, made.text, address=HERE, request=None) is not None


def test_guesses_from_one_address_are_counted_whatever_names_they_try(
    ada: str, owner: Session, db: Engine
) -> None:
    create_user(owner, "eve", is_admin=False, password=PASSWORD, tenant=None)
    assert guessed(db, "x", name="first") is None
    failed_before(db, 28)
    # The attacker's own account gives no guess back.
    assert guessed(db, PASSWORD, name="eve") is not None
    for number in range(2):
        assert guessed(db, "x", name=f"user{number}") is None
    with pytest.raises(LogInBlockedError):
        guessed(db, PASSWORD)
    assert guessed(db, PASSWORD, address="10.0.0.2") is not None


def test_addresses_of_one_ipv6_network_are_counted_as_one(ada: str, db: Engine) -> None:
    for number in range(5):
        assert guessed(db, "wrong", address=f"2001:db8::{number}") is None
    with pytest.raises(LogInBlockedError):
        guessed(db, PASSWORD, address="2001:db8::99")
    assert guessed(db, PASSWORD, address="2001:db8:0:1::99") is not None
    for _ in range(5):
        assert guessed(db, "wrong", address="::ffff:10.0.0.7") is None
    with pytest.raises(LogInBlockedError):
        guessed(db, PASSWORD, address="10.0.0.7")


def test_many_guesses_at_once_are_no_more_than_one_after_the_other(
    ada: str, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(passwords, "matches", lambda stored, _: bool(looked_at.append(stored)))

    def guess(_: int) -> None:
        try:
            guessed(made, "wrong")
        except LogInBlockedError:
            return

    made = engine(db.url.render_as_string(hide_password=False), pool_size=10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(guess, range(40)))
    made.dispose()
    assert len(looked_at) == 5


def test_an_outdated_hash_is_made_anew_at_the_next_log_in(
    ada: str, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert guessed(db, PASSWORD) is not None
    with db.connect() as connection:
        stored = connection.scalar(select(t.user.c.user_password).where(t.user.c.user_name == ada))
    assert not passwords.is_outdated(stored or "")
    assert passwords.matches(stored or "", PASSWORD)


def test_a_session_ends_by_its_user_here_and_elsewhere_and_no_other_does(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    create_user(owner, "bob", is_admin=True, password=PASSWORD, tenant=None)
    here, elsewhere, bobs = logged_in(client), logged_in(client), logged_in(client, "bob")
    listed = client.get(SESSIONS, headers=here).json()["items"]
    assert sorted(each["current"] for each in listed) == [False, True]
    (foreign,) = client.get(SESSIONS, headers=bobs).json()["items"]
    for wrong in (foreign["id"], "x", "%00", "0" * 16, ""):
        assert client.post(f"{SESSIONS}/{wrong}/end", headers=here).status_code in (404, 405), wrong
    (other,) = [each["id"] for each in listed if not each["current"]]
    assert client.post(f"{SESSIONS}/{other}/end", headers=here).status_code == 200
    assert client.get(ME, headers=elsewhere).status_code == 401
    gone = client.post(f"{BASE}/logout", headers=here)
    assert (gone.status_code, "Max-Age=0" in gone.headers["set-cookie"]) == (200, True)
    assert client.get(ME, headers=here).status_code == 401
    assert client.get(ME, headers=bobs).status_code == 200
    assert [line[:3] for line in audited(db) if line[0] == "session.end" and line[1] == "done"] == [
        ("session.end", "done", "ada"), ("session.end", "done", "ada")
    ]  # fmt: skip


def test_a_session_ends_when_idle_and_after_a_week_however_busy(
    client: TestClient, ada: str, db: Engine
) -> None:
    page = logged_in(client)
    for _ in range(20):
        # Each use begins the idle time anew, and nothing moves the end of all.
        later(db, last_login_time=timedelta(hours=8), expire_time=timedelta(hours=8))
        assert client.get(ME, headers=page).status_code == 200
    later(db, last_login_time=timedelta(), expire_time=timedelta(hours=8))
    assert client.get(ME, headers=page).status_code == 401
    page = logged_in(client)
    later(db, last_login_time=timedelta(hours=12, seconds=1))
    assert client.get(ME, headers=page).status_code == 401


def test_a_new_password_and_a_disabled_user_end_sessions_and_their_streams_at_once(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    for change in (
        lambda: set_password(owner, ada, password=PASSWORD + "!", at=datetime.now(UTC)),
        lambda: set_enabled(owner, ada, enabled=False, at=datetime.now(UTC)),
    ):
        password = PASSWORD if guessed(db, PASSWORD) else PASSWORD + "!"
        page = logged_in(client, password=password)
        text = page["Cookie"].partition("=")[2]
        principal = log_ins.principal_of_session(db, text, address=None, request=None)
        assert principal is not None
        watched = WatchedTables(db)
        assert watched.watchable(principal, [], with_projects=True) is not None
        change()
        assert client.get(ME, headers=page).status_code == 401
        assert watched.watchable(principal, [], with_projects=True) is None


@pytest.fixture
def link(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Gives the path of a new link."""
    address = "http://127.0.0.1:12345"
    monkeypatch.setattr("common.config.addresses.api_url", lambda _: address)

    def made(*options: str) -> str:
        code, out, err = cli("console", "--print", *options)
        assert code == 0, err
        assert out.startswith(f"{address}/console?link=")
        assert out.count("\n") == 1
        return out.strip().removeprefix(address)

    return made


def opened(client: TestClient, path: str) -> tuple[int, str]:
    """Open a link: the status, and who is logged in by its cookie."""
    answer = client.get(path, follow_redirects=False)
    client.cookies.clear()
    if answer.status_code != 303:
        assert "set-cookie" not in answer.headers
        return answer.status_code, ""
    assert (answer.headers["referrer-policy"], answer.text) == ("no-referrer", "")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert answer.headers["location"] == "/"
    page = client.get(ME, headers={"Cookie": cookie})
    return answer.status_code, page.json()["name"]


def test_a_link_logs_in_once_within_thirty_seconds(
    client: TestClient, ada: str, link: Callable[..., str], owner: Session, db: Engine
) -> None:
    path = link()
    # It is no cookie of a session.
    text = path.partition("=")[2]
    assert client.get(ME, headers={"Cookie": f"{COOKIE}={text}"}).status_code == 401
    assert opened(client, path) == (303, "admin")
    assert opened(client, path) == (401, "")
    assert opened(client, link("--user", ada)) == (303, ada)
    late = link()
    later(db, expire_time=timedelta(seconds=29))
    in_time = link()
    later(db, expire_time=timedelta(seconds=2))
    assert (opened(client, late)[0], opened(client, in_time)[0]) == (401, 303)
    unused = link("--user", ada)
    set_enabled(owner, ada, enabled=False, at=datetime.now(UTC))
    assert opened(client, unused) == (401, "")
    for wrong in ("", "x", "a" * 43, "%00"):
        assert opened(client, f"/console?link={wrong}")[0] == 401
    assert client.get("/console").status_code == 422
    with db.connect() as connection:
        lines = str(connection.execute(select(t.audit_log)).all())
        rows = str(connection.execute(select(t.session)).all())
    assert text not in lines + rows
    assert ("session.begin", "done", "admin", "by a link of the command line") in audited(db)


def test_of_two_who_open_a_link_at_once_one_gets_in(link: Callable[..., str], db: Engine) -> None:
    made = engine(db.url.render_as_string(hide_password=False), pool_size=4)
    both = Barrier(2)

    def open_it(text: str) -> str | None:
        both.wait()
        return log_ins.open_link(made, text, address=None, request=None)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            text = link().partition("=")[2]
            got = list(pool.map(open_it, [text, text]))
            assert sorted(each is None for each in got) == [False, True]
    made.dispose()


def test_a_link_of_another_cluster_opens_nothing(
    client: TestClient, new_database: Callable[..., str], config: Any
) -> None:
    other = Session()
    other.__dict__.update(config=config, engine=engine(new_database(template=MIGRATED)))
    made = log_ins.make_link(other)
    other.close()
    assert opened(client, f"/console?link={made.text}") == (401, "")


def test_a_link_needs_an_enabled_user(cli: Cli, db: Engine, link: Callable[..., str]) -> None:
    assert cli("console", "--print", "--user", "nobody")[0] == 3
    with db.begin() as connection:
        connection.execute(t.user.update().values(state=0))
    assert cli("console", "--print")[0] == 3
    assert cli("console", "--print", "--user", "admin")[0] == 4


def test_a_browser_gets_the_link_by_a_file_that_its_owner_alone_reads(
    cli: Cli, link: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    answers = iter([True, True, False])

    def browse(url: str) -> bool:
        given.append(url)
        return next(answers)

    monkeypatch.setattr(webbrowser, "open", browse)
    for _ in range(2):
        code, out, err = cli("console")
        assert (code, out, "logged in as admin" in err) == (0, "", True)
    page = Path(given[-1].removeprefix("file://"))
    assert oct(page.stat().st_mode & 0o777) == "0o600"
    assert list(page.parent.iterdir()) == [page]
    (text,) = re.findall(
        r"url=http://127\.0\.0\.1:12345/console\?link=([\w-]{43})\"", page.read_text()
    )
    assert text not in str(given)
    # Without one, the link is for the person.
    code, out, _ = cli("console")
    assert (code, "/console?link=" in out, list(page.parent.iterdir())) == (0, True, [])


def test_a_token_with_limits_sees_no_session_and_no_role_outside_of_them(
    client: TestClient, ada: str, owner: Session
) -> None:
    create_project(owner, "far", description=None)
    for project in ("default", "far"):
        grant(owner, ada, project=project, role="author")
    page = logged_in(client)
    (own,) = client.get(SESSIONS, headers=page).json()["items"]
    limits: list[tuple[str, tuple[str, ...]]] = [("viewer", ()), ("admin", ("default",))]
    for role, projects in limits:
        made = create_token(
            owner,
            ada,
            name=role,
            role=role,
            projects=projects,
            life=timedelta(hours=1),
            now=datetime.now(UTC),
        )
        by_token = {"Authorization": f"Bearer {made.text}"}
        assert client.get(SESSIONS, headers=by_token).status_code == 403
        ended = client.post(f"{SESSIONS}/{own['id']}/end", headers=by_token)
        assert ended.status_code == 403
        shown = client.get(ME, headers=by_token).json()["projects"]
        assert {each["project"] for each in shown} == set(projects or ("default", "far"))

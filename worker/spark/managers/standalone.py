"""A standalone cluster of Spark's own, by the JSON of its Master's page.

That shows an application's name and not its settings, and a program may well name itself. So of an
application whose name has no tag the driver's own page is asked, which the Master's page of it
links to: once, for the answer can't change. A Master that is not ALIVE knows nothing.

A driver that runs in the cluster (`deployMode` cluster, which is for the JVM only) is listed apart
from its application and runs on when that is killed, and the Master shows no setting of it. Its
Worker does: the driver's log there starts with its command, which has the tag (`worker_log`). Where
no Worker's page can be read, the driver's own page names the driver, once there is an application.
From then on it is reported, and killed, like another application with the same tag; before, it is
nameless.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any, ClassVar, Final
from urllib.parse import urljoin, urlsplit

from worker.spark.managers.base import (
    Application,
    AppState,
    Ask,
    ManagerError,
    ManagerUnreachableError,
)
from worker.spark.managers.driver_page import About, about
from worker.spark.managers.rest import PAGE, PATIENT, Limits, Rest, host_of
from worker.spark.managers.settings import is_page_of
from worker.spark.managers.shapes import an_object, link, needed_text, objects, text
from worker.spark.managers.tags import in_name, parse
from worker.spark.managers.worker_log import WorkerLog

_ALIVE: Final = "ALIVE"
_LOOKS: Final = 20
"""A driver that has shown no page by then has none."""

_ID = re.compile(r"[\w.-]{1,100}")
_DRIVER_ID = re.compile(r"driver-[0-9]{14}-[0-9]{4,}")
_FORM_TOKEN = re.compile(r'name="csrfToken" value="([\w-]{1,200})"')
_PAGE_OF_DRIVER = re.compile(r'<a href="([^"]{1,500})">Application Detail UI</a>')
_STATES: Final[Mapping[str, AppState]] = {
    "WAITING": AppState.WAITING,
    "RUNNING": AppState.RUNNING,
    "FINISHED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "KILLED": AppState.KILLED,
    # The Master says so of one that it lost sight of and has struck off its list.
    "UNKNOWN": AppState.FAILED,
}
_DRIVER_STATES: Final[Mapping[str, AppState]] = {
    "SUBMITTED": AppState.WAITING,
    "RUNNING": AppState.RUNNING,
    "RELAUNCHING": AppState.RUNNING,
    "FINISHED": AppState.SUCCEEDED,
    "KILLED": AppState.KILLED,
    "FAILED": AppState.FAILED,
    "ERROR": AppState.FAILED,
}


class StandaloneManager:
    """The applications of the Masters that have these pages.

    FINISHED, told as SUCCEEDED, means only that a driver has taken its leave: how it ended is known
    by its exit code.
    """

    name: ClassVar[str] = "the Spark Master"

    def __init__(
        self,
        pages: Sequence[str],
        *,
        master: str = "",
        history_url: str = "",
        limits: Limits = PATIENT,
    ) -> None:
        """`master` as in spark://a:7077,b:7077 is the cluster that is meant.

        Without it the pages are of whatever clusters, and one that stands by has nothing to say.
        """
        self._rests = {page: Rest([page], limits=limits) for page in pages}
        self._master = master
        self._history_url = history_url
        self._drivers: dict[str, str] = {}
        """The pages of live drivers, by id."""
        self._abouts: dict[str, About] = {}
        """The facts on the pages of the drivers that were asked, by id."""
        self._looks: dict[str, int] = {}
        """The number of looks at each live application whose driver's page is not known yet."""
        self._owners: dict[str, str] = {}
        """The tags in the commands of drivers in the cluster, by id; "" for one without a tag."""
        self._workers: dict[str, str] = {}
        """The pages of these drivers' Workers, by the driver's id."""
        self._old: frozenset[str] | None = None
        """The drivers that were over at the first look. Their logs are not read."""
        self._nameless: Sequence[Application] = ()

    def learn_from(self, other: StandaloneManager) -> None:
        """Know what another one has found out: the page of a driver that dies can't be asked."""
        self._drivers, self._abouts = dict(other._drivers), dict(other._abouts)
        self._looks = dict(other._looks)
        self._owners, self._old = dict(other._owners), other._old

    def with_tag(self, tag: str) -> list[Application]:
        return [each for each in self._seen() if tag in each.tags]

    def with_prefix(self, prefix: str) -> list[Application]:
        return [each for each in self._seen() if any(t.startswith(prefix) for t in each.tags)]

    def kill(self, application: Application) -> None:
        rest = self._rests[application.place]
        kind = "driver" if _DRIVER_ID.fullmatch(application.id) else "app"
        form = {"id": application.id, "terminate": "true"}
        # From Spark 4.3 on a Master takes only what comes from a page of its own.
        if (token := _FORM_TOKEN.search(rest.text("/"))) is not None:
            form["csrfToken"] = token[1]
        if rest.post_form(f"/{kind}/kill/", form).is_missing:
            raise ManagerUnreachableError(
                f"{host_of(application.place)} kills nothing: spark.ui.killEnabled is off there"
            )

    def log(self, application: Application) -> str:
        page = self._workers.get(application.id)
        # A driver may only be taken for ours. Its log is shown if its command has our tag.
        if not page or self._owners.get(application.id) not in application.tags:
            return ""
        return WorkerLog(page, application.id).end()

    def ask(self, application: Application) -> Ask | None:
        page = self._drivers.get(application.id)
        return None if application.state.is_final or not page else self._ask(page)

    def nameless(self) -> Sequence[Application]:
        return self._nameless

    def _seen(self) -> list[Application]:
        found: list[Application] = []
        nameless: list[Application] = []
        ids: set[str] = set()
        over: set[str] = set()
        wrong: list[ManagerError] = []
        others: list[str] = []
        is_ours = False
        for page, rest in self._rests.items():
            try:
                document = an_object(rest.json("/json/"), "the answer")
                if needed_text(document, "status") != _ALIVE:
                    continue
                apps = self._applications(page, document)
                drivers = self._drivers_of(page, document, apps)
            except ManagerError as error:
                wrong.append(error)
                continue
            found += [*apps, *(each for each in drivers if each.tags)]
            nameless += [each for each in drivers if not each.tags]
            ids |= {each.id for each in (*apps, *drivers)}
            over |= {each.id for each in drivers if each.state.is_final}
            if is_page_of(self._master, page, text(document, "url")):
                is_ours = True
            else:
                others.append(text(document, "url")[:80])
        # Of several pages, one of which is silent, nobody knows whether the silent one is meant.
        if wrong and not is_ours:
            raise wrong[0]
        if not wrong:
            self._forget_others(ids)
        if self._master and not is_ours:
            # Another cluster's Master knows nothing, and not that there is nothing.
            raise ManagerUnreachableError(
                f"no page in spark.standalone_urls is of {self._master},"
                f" only of {', '.join(others)}"
                if others
                else "no Master is ALIVE: it stands by, or is recovering"
            )
        shown = {*self._owners, *(each.driver for each in self._abouts.values())}
        self._nameless = [each for each in nameless if each.id not in shown]
        if self._old is None:
            self._old = frozenset(over)
        return found

    def _applications(self, page: str, document: Mapping[str, Any]) -> list[Application]:
        live = objects(document.get("activeapps"), "activeapps")
        over = objects(document.get("completedapps"), "completedapps")
        has_drivers = bool(objects(document.get("activedrivers"), "activedrivers"))
        return [self._application(page, each, has_drivers=has_drivers) for each in (*live, *over)]

    def _drivers_of(
        self, page: str, document: Mapping[str, Any], apps: Sequence[Application]
    ) -> list[Application]:
        """Return all drivers in the cluster, with their tags as far as these are known."""
        workers = objects(document.get("workers", []), "workers")
        pages = {text(each, "id"): link(text(each, "webuiaddress")) for each in workers}
        claims = {self._abouts.get(app.id, About()).driver: app for app in apps}
        found = []
        for kind in ("activedrivers", "completeddrivers"):
            is_over = kind == "completeddrivers"
            for each in objects(document.get(kind), kind):
                driver = needed_text(each, "id")
                self._workers[driver] = pages.get(text(each, "worker"), "")
                self._read_command(driver, is_over=is_over)
                app = claims.get(driver)
                owner = self._owners.get(driver)
                tags = (owner,) if owner else app.tags if app and owner is None else ()
                # What it does not call a success itself is not one.
                other = AppState.FAILED if is_over else AppState.RUNNING
                found.append(
                    # Not with the links of the application, which has them itself.
                    Application(
                        id=driver,
                        tags=tags,
                        name=app.name if app else text(each, "mainclass"),
                        state=_DRIVER_STATES.get(text(each, "state"), other),
                        place=page,
                        is_driver=True,
                    )
                )
        return found

    def _read_command(self, driver: str, *, is_over: bool) -> None:
        """Read a driver's tag from its Worker's log, unless that is known or in vain."""
        page, looks = self._workers[driver], self._looks.get(driver, 0)
        is_old = is_over and (self._old is None or driver in self._old)
        if not page or driver in self._owners or is_old or looks > _LOOKS:
            return
        try:
            tag = WorkerLog(page, driver).tag()
        except ManagerError:
            tag, is_over = None, True
        if tag is not None:
            self._owners[driver] = tag if parse(tag) else ""
        elif is_over:
            # The log starts after the program was copied. A driver that ended before lacks one.
            self._looks[driver] = looks + 1

    def _application(
        self, page: str, document: Mapping[str, Any], *, has_drivers: bool
    ) -> Application:
        app_id = needed_text(document, "id")
        if not _ID.fullmatch(app_id):
            raise ManagerUnreachableError(f"{app_id[:80]!r} is no id of an application")
        word = needed_text(document, "state")
        state = _STATES.get(word)
        if state is None:
            raise ManagerUnreachableError(f"{word[:40]!r} is no state that is known of a Master")
        name = text(document, "name")
        own_page = f"{page}/app/?appId={app_id}"
        named_tag = in_name(name)
        if not state.is_final:
            self._find_driver(page, app_id)
            # A program may have written that page: it is asked no more than is needed.
            if named_tag is None or has_drivers:
                self._read_page(app_id)
        tag = named_tag or self._abouts.get(app_id, About()).tag
        history = f"{self._history_url}/history/{app_id}" if self._history_url else ""
        return Application(
            id=app_id,
            tags=(tag,) if tag else (),
            name=name,
            state=state,
            user=text(document, "user"),
            ui=self._drivers.get(app_id, "") or link(own_page),
            history=history or link(own_page),
            place=page,
        )

    def _forget_others(self, seen: Collection[str]) -> None:
        for known in (self._drivers, self._abouts, self._looks, self._owners, self._workers):
            for app_id in [each for each in known if each not in seen]:
                del known[app_id]

    def _find_driver(self, page: str, app_id: str) -> None:
        looks = self._looks[app_id] = self._looks.get(app_id, 0) + 1
        if app_id in self._drivers or looks > _LOOKS:
            return
        found = _PAGE_OF_DRIVER.search(self._rests[page].text("/app/", {"appId": app_id}))
        if found is not None:
            # Relative if the Master stands before it as a proxy.
            self._drivers[app_id] = link(urljoin(f"{page}/", unescape(found[1]))).rstrip("/")

    def _read_page(self, app_id: str) -> None:
        page = self._drivers.get(app_id)
        if not page or app_id in self._abouts or self._looks.get(app_id, 0) > _LOOKS:
            return
        try:
            found = about(self._ask(page), app_id)
        except ManagerError:
            # Not answered yet, or a page that may not be asked from here: it may tell next time.
            return
        self._abouts[app_id] = found if parse(found.tag) else replace(found, tag="")

    def _ask(self, page: str) -> Ask:
        parts = urlsplit(page)
        rest = Rest([f"{parts.scheme}://{parts.netloc}"], limits=PAGE)
        return lambda path, params: rest.json(f"{parts.path}/api/v1/{path}", params)

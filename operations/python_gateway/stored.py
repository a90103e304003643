"""The gateway at a database: files of pydolphinscheduler become definitions, with their rights.

Nothing is taken from a client's word about who it is. Users and tenants are never made; a project
is, if an administrator asks. Resources of a user are files of that user alone.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from common.clock import SystemClock
from common.config import cluster_zone
from common.errors import InvalidDefinitionError, NotFoundError
from common.folders import USERS
from common.model.codes import code_in
from common.model.rights import Action
from common.model.states import ReleaseState, WarningType
from common.py4j.wire import Thing
from common.store.people.definitions import DefinitionRow
from common.store.people.projects import ProjectView
from common.store.people.schedule_views import ScheduleView
from operations import numbered_pages, scheduling
from operations.datasource_params import TYPES
from operations.datasources import list_datasources
from operations.definition_document import DEPENDENT_CODE, DEPENDENT_TASK_CODE
from operations.definition_files import DefinitionDocument, read_definition_files
from operations.definitions import definition_page, definition_with_code, import_definitions
from operations.environments import environment_given
from operations.errors import NameTakenError, UsageError
from operations.projects import create_project, definition_in, find_project
from operations.python_gateway.resource_files import limits_of, write_resource
from operations.python_gateway.submissions import (
    Submission,
    datasources_in,
    dependent_items,
    entry_of,
    group_named,
    name_task,
    schedule_of,
)
from operations.references import Kind
from operations.rights import change, check_author
from operations.runs import begin_run
from operations.schedule_settings import ScheduleSettings, read_cron
from operations.session import Session
from operations.stored_schedules import NO_END, zone_of_schedule
from operations.task_codes import graph_of, new_code
from operations.tenants import list_tenants
from operations.times import read_moment, read_zone

_STANDARD_INPUT: Final = Path("-")
_MOST_SCHEDULES: Final = 2
_KEY_FILE: Final = "resources.key"
"""In the home. Folders of users are named by it."""
_LONGEST_PATH: Final = 200
_SHOWN: Final = 20
_WRITES: Final = threading.Lock()
"""Held while a resource is written; other api-servers are kept out by a lock of the folder."""


class StoredGateway:
    """Carries out what a client asks, as the principal of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def user(self) -> Thing:
        who = self._session.principal
        return Thing(fields={"id": who.user_id, "userName": who.user_name})

    def tenant(self, code: str) -> Thing:
        found = {each.code: each.id for each in list_tenants(self._session)}
        return Thing(fields={"id": found.get(code, 0), "tenantCode": code})

    def need_project(self, name: str, description: str | None) -> None:
        """Make the project if it is not there, which takes an administrator."""
        try:
            find_project(self._session, name=name)
        except NotFoundError:
            try:
                create_project(self._session, name, description=description)
            except NameTakenError as error:
                raise NotFoundError(f"there is no project {name!r:.200}") from error

    def task_code(self, project: str, definition: str, task: str) -> int:
        """The code of before, or a new one."""
        try:
            row = self._row(find_project(self._session, name=project), definition)
        except NotFoundError:
            return new_code()
        return graph_of(row.id, row.process_definition_json).codes.get(task) or new_code()

    def environment(self, name: str) -> int:
        return environment_given(self._session, name).view.code

    def keep_resource(self, name: str, content: str) -> Thing:
        """Write a file into the user's folder of the resources on this computer."""
        path = _relative(name)
        own = self._own(path)
        # Calls that wait for each other hold no connection to the database.
        with _WRITES, change(self._session, "resource.save", "resource", object_name=path) as made:
            check_author(made.db, self._session.principal)
            made.detail = f"{len(content)} characters"
            write_resource(
                self._resources, own, content, limits=limits_of(self._session.config.api)
            )
        return Thing(fields={"id": own, "fullName": own, "fileName": path})

    def resource(self, name: str) -> str:
        """The user's own file before one of all; a path elsewhere is left to the task."""
        if ":" in name or name.startswith("/"):
            return name
        path = _relative(name)
        user = self._session.principal.user_id
        # Former versions used the number of the user alone.
        for own in (self._own(path), f"{USERS}/{user}/{path}"):
            if (self._resources / own).is_file():
                return own
        return name

    def datasource(self, name: str, kind: str | None) -> Thing:
        """The data source of this name, by which the definition will refer to it."""
        names = {code: word for word, code in TYPES.items()}
        for each in list_datasources(self._session):
            found = names.get(each.type, str(each.type))
            if each.name == name and (kind is None or kind.lower() == found):
                return Thing(
                    fields={
                        "id": each.id,
                        "name": each.name,
                        "note": each.note,
                        "userId": 0,
                        "type": {"descp": found, "code": each.type},
                        "connectionParams": "{}",
                    }
                )
        raise NotFoundError(
            f"there is no data source {name!r:.100}"
            + ("" if kind is None else f" of the type {kind!r:.40}")
            + "; make it: orcaflow datasource create"
        )

    def definition(self, project: str, name: str) -> Mapping[str, int | str]:
        found = find_project(self._session, name=project)
        row = self._row(found, name)
        return {"id": row.id, "code": row.code, "name": row.name, "projectCode": found.code}

    def task_of(self, project: str, definition: str, task: str) -> int:
        """The code of a task that is there."""
        row = self._row(find_project(self._session, name=project), definition)
        code = graph_of(row.id, row.process_definition_json).codes.get(task)
        if code is None:
            raise NotFoundError(f"there is no task {task!r:.200} in {definition!r:.200}")
        return code

    def submit(self, given: Submission) -> int:
        """Save the definition, then its schedule; what would keep it OFFLINE refuses it.

        Whoever asks for OFFLINE gets it saved all the same.
        """
        project = find_project(self._session, name=given.project)
        settings = self._settings(given)
        document = self._read(given)
        lost = [str(each) for each in document.findings if each.keeps_offline]
        if given.online and lost:
            raise InvalidDefinitionError((*lost[:_SHOWN], _CURE))
        (made,) = import_definitions(
            self._session,
            [document],
            online=given.online,
            environment={},
            project_id=project.id,
            whole=given.online,
            own_codes=True,
        )
        row = definition_in(self._session, project, definition_id=made.id)
        if settings is not None:
            online = given.online and given.schedule_online
            self._schedule(project, row, settings, online=online)
        return row.code

    def run(self, project: str, definition: str, *, worker_group: str, warning_type: str) -> None:
        """Put the command of a run."""
        found = find_project(self._session, name=project)
        row = definition_in(
            self._session,
            found,
            definition_id=self._row(found, definition).id,
            action=Action.OPERATE,
        )
        begin_run(
            self._session,
            row.id,
            params={},
            worker_group=group_named(worker_group),
            warning_type=_warning_type(warning_type),
        )

    def _row(self, project: ProjectView, name: str) -> DefinitionRow:
        found = definition_page(
            self._session, name=name.replace("\0", ""), project_id=project.id, limit=1
        )
        if not found:
            raise NotFoundError(
                f"there is no definition {name!r:.200} in project {project.name!r:.200}: submit it"
                " before what refers to it"
            )
        return found[0]

    def _read(self, given: Submission) -> DefinitionDocument:
        entry = entry_of(given)
        for item in dependent_items(entry):
            name = self._awaited(item)
            if name is not None:
                name_task(item, name)
        wanted = set(datasources_in(entry))
        names = {
            (Kind.DATASOURCE, each.id): each.name
            for each in (list_datasources(self._session) if wanted else ())
            if each.id in wanted
        }
        (document,) = read_definition_files(
            [_STANDARD_INPUT],
            resources=self._resources,
            given=names,
            strict=False,
            standard_input=json.dumps([entry]).encode(),
            looks_up=False,
        )
        return document

    def _awaited(self, item: Mapping[str, Any]) -> str | None:
        """Return the name of the task that a dependent item looks at; None if it is not seen."""
        row = definition_with_code(self._session, code_in(item[DEPENDENT_CODE]) or 0)
        wanted = code_in(item[DEPENDENT_TASK_CODE])
        if row is None:
            return None
        codes = graph_of(row.id, row.process_definition_json).codes
        return next((name for name, code in codes.items() if code == wanted), None)

    def _settings(self, given: Submission) -> ScheduleSettings | None:
        found = schedule_of(given)
        if found is None:
            return None
        zone = found.get("timezoneId")
        return ScheduleSettings(
            cron=read_cron(found["crontab"]),
            zone=None if zone is None else read_zone(zone),
            first=found.get("startTime"),
            last=found.get("endTime"),
            worker_group=group_named(given.worker_group),
            warning_type=_warning_type(given.warning_type),
        )

    def _schedule(
        self,
        project: ProjectView,
        row: DefinitionRow,
        settings: ScheduleSettings,
        *,
        online: bool,
    ) -> None:
        """Give the definition its one schedule, which is changed if it is there."""
        now = SystemClock().now()
        found, count = numbered_pages.schedules(
            self._session, project.id, 1, _MOST_SCHEDULES, definition_id=row.id
        )
        if count > 1:
            raise UsageError(
                "schedule",
                f"{row.name!r} is saved, and has {count} schedules already: leave `schedule` out,"
                " or delete all but one (orcaflow schedule list)",
            )
        if not found:
            scheduling.create(self._session, row.id, settings, online=online, now=now)
            return
        (view,) = found
        is_online = view.release_state == ReleaseState.ONLINE
        if not self._is_same(view, settings):
            # One transaction: a schedule whose change fails fires as before.
            is_online = is_online or online
            scheduling.edit(self._session, view.id, settings, now=now, online=is_online)
        if is_online != online:
            self._release(view, ReleaseState.ONLINE if online else ReleaseState.OFFLINE)

    def _is_same(self, view: ScheduleView, settings: ScheduleSettings) -> bool:
        """True if nothing would change but the beginning, which by default is now."""
        zone = settings.zone or cluster_zone(self._session.config)
        own = zone_of_schedule(view, cluster_zone(self._session.config))
        last = settings.last
        end = NO_END
        if last is not None:
            end = min(read_moment(last, zone, field="endTime", ends_day=True), NO_END)
        begins = view.start_time
        now = SystemClock().now()
        if settings.first is not None:
            begins = read_moment(settings.first, zone, field="startTime")
        is_begun = begins == view.start_time or max(begins, view.start_time) <= now
        return view.crontab == settings.cron and own == zone and view.end_time == end and is_begun

    def _release(self, view: ScheduleView, wanted: ReleaseState) -> None:
        scheduling.set_release_state(self._session, wanted, ids=[view.id], now=SystemClock().now())

    @property
    def _resources(self) -> Path:
        return self._session.config.home / "resources"

    def _own(self, path: str) -> str:
        folder = user_folder(self._session.config.home, self._session.principal.user_id)
        return f"{USERS}/{folder}/{path}"


_CURE: Final = (
    "nothing was saved: mend it, or have it kept OFFLINE with release_state='offline'"
    " (PYDS_WORKFLOW_RELEASE_STATE=offline)"
)


def _warning_type(word: str) -> WarningType:
    if word.upper() not in WarningType.__members__:
        raise UsageError("warningType", f"{word!r:.40} is no kind of warning")
    return WarningType[word.upper()]


def _relative(name: str) -> str:
    """Return the path of a resource, which may not lead out of its folder."""
    path = PurePosixPath(name.lstrip("/"))
    is_plain = all(part.isprintable() and part not in ("..", ".") for part in path.parts)
    if not path.parts or not is_plain or len(name) > _LONGEST_PATH:
        raise UsageError("name", f"{name!r:.100} is no path of a resource, as lib/helpers.py is")
    return str(path)


def user_folder(home: Path, user_id: int) -> str:
    """Return the name of a user's folder below `resources/users`.

    Tasks of all accounts may have to read the files, so the files are open to all accounts. But the
    folder's name can't be guessed, and `resources/users` can't be listed.
    """
    key = _key(home / _KEY_FILE)
    return f"{user_id}-{hmac.digest(key, str(user_id).encode(), 'sha256').hex()[:32]}"


def _key(file: Path) -> bytes:
    """Return the key of this home; create it if it is missing. Creators at one time agree."""
    with contextlib.suppress(FileNotFoundError):
        return bytes.fromhex(file.read_text(encoding="ascii"))
    with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="ascii") as draft:
        draft.write(secrets.token_hex(32))
        draft.flush()
        with contextlib.suppress(FileExistsError):
            os.link(draft.name, file)
    return bytes.fromhex(file.read_text(encoding="ascii"))

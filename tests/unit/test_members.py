"""The rows of living daemons: a master that lacks the database is not simply ready."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from common.config import Config
from common.model.cluster import Heartbeat, NodeKind
from operations.checks import Result, without_database_finding
from operations.documents.servers import member_row
from operations.members import Member, MemberHealth, without_database
from orcaflow.remote.documents import member_of

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
BEAT = Heartbeat(host="h", pid=7, cpu=0, memory=0, load=0, created=NOON, beaten=NOON)


def the_row(beat: Heartbeat | None) -> dict[str, object]:
    member = Member(kind=NodeKind.MASTER, address="h:5678", incarnation=3, beat=beat)
    return member_row(MemberHealth(member=member, health="ready", reason=None, offer=None))


def test_a_row_has_the_seconds_for_which_a_master_has_not_reached_the_database() -> None:
    assert the_row(BEAT)["database_away"] is None
    away = the_row(replace(BEAT, database_away=17))
    assert away["database_away"] == 17
    sent = away | {"since": NOON.isoformat(), "beaten": NOON.isoformat()}
    assert member_row(member_of(sent)) == away


def test_doctor_warns_of_a_master_without_the_database() -> None:
    assert without_database(None) is None
    assert without_database(BEAT) is None
    told = without_database(replace(BEAT, database_away=17))
    assert told == "has not reached PostgreSQL for 17 s"
    found = without_database_finding(Config(home=Path("/nowhere")), "h:5678", told)
    assert (found.check, found.result) == ("master", Result.WARNING)
    assert found.detail.startswith("h:5678 has not reached PostgreSQL for 17 s; after 15 s another")

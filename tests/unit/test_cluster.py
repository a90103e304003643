"""The texts and names of znodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from common.model.cluster import Heartbeat, KillEntry, QueueEntry, ip_number
from common.model.workers import WorkerMode, WorkerStatus, is_worker_name, mode_of, shunned

SHANGHAI = ZoneInfo("Asia/Shanghai")
BEAT = Heartbeat(
    host="192.168.1.10",
    pid=23871,
    cpu=0.12,
    memory=0.35,
    load=0.87,
    created=datetime(2020, 3, 1, 10, 0, tzinfo=SHANGHAI),
    beaten=datetime(2020, 3, 1, 10, 5, 10, tzinfo=SHANGHAI),
)
TEXT = "192.168.1.10,23871,0.12,0.35,0.87,2020-03-01 10:00:00,2020-03-01 10:05:10"
ENTRY = QueueEntry(process_priority=2, process_instance_id=12, task_priority=2, task_instance_id=45)


# Heartbeats


def test_a_heartbeat_is_seven_fields() -> None:
    assert BEAT.text() == TEXT


def test_a_heartbeat_is_read_as_it_was_written() -> None:
    assert Heartbeat.parse(TEXT, zone=SHANGHAI) == BEAT


STATUS = WorkerStatus(
    capacity=8,
    used=3,
    version="0.1.0",
    category="big",
    mode=WorkerMode.DISABLED,
    group_ids=frozenset({4, 2}),
    share_percent=70,
)


def test_a_worker_s_status_stands_behind_the_seven_fields() -> None:
    text = replace(BEAT, status=STATUS).text()
    assert text.split(",", 7)[:7] == TEXT.split(",")
    assert Heartbeat.parse(text, zone=SHANGHAI) == replace(BEAT, status=STATUS)


@pytest.mark.parametrize(
    "more",
    [
        "{}",
        "{",
        '{"capacity": 8}',
        STATUS.text().replace("disabled", "asleep"),
        STATUS.text().replace("[2, 4]", '["2"]'),
        STATUS.text().replace(": 70", ": 101"),
        STATUS.text().replace("8", "-8"),
        STATUS.text().replace("8", "true"),
        '{"a":' * 100_000,
    ],
)
def test_a_status_that_can_t_be_read_is_none_and_spoils_no_heartbeat(more: str) -> None:
    assert Heartbeat.parse(f"{TEXT},{more}", zone=SHANGHAI) == BEAT


def test_a_master_says_for_how_long_it_has_not_reached_the_database() -> None:
    away = replace(BEAT, database_away=17)
    assert away.text() == f'{TEXT},{{"databaseAway": 17}}'
    assert Heartbeat.parse(away.text(), zone=SHANGHAI) == away
    for strange in ('{"databaseAway": "17"}', '{"databaseAway": -1}', '{"databaseAway": true}'):
        assert Heartbeat.parse(f"{TEXT},{strange}", zone=SHANGHAI) == BEAT


def test_keys_of_later_versions_are_passed_over() -> None:
    assert WorkerStatus.read(STATUS.text().replace("{", '{"later": [1], ')) == STATUS


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("w1", True),
        ("w1:1234", True),
        ("10.0.0.7:1", True),
        ("[::1]:1234", True),
        ("[::1]", True),
        ("", False),
        ("w1:", False),
        ("w1:0", False),
        ("w1:65536", False),
        (":1234", False),
        ("::1:1234", False),
        ("w 1", False),
        ("a,b", False),
        ("a\n", False),
        ("w" * 256, False),
    ],
)
def test_a_worker_is_named_by_its_host_or_its_address(name: str, *, is_one: bool) -> None:
    assert is_worker_name(name) is is_one


def test_a_worker_s_own_mode_goes_before_that_of_its_host() -> None:
    modes = {"w": WorkerMode.DISABLED, "w:2": WorkerMode.ENABLED, "[::1]": WorkerMode.LAZY}
    assert mode_of("w:1", modes) is WorkerMode.DISABLED
    assert mode_of("w:2", modes) is WorkerMode.ENABLED
    assert mode_of("[::1]:2", modes) is WorkerMode.LAZY
    assert mode_of("v:1", modes) is WorkerMode.ENABLED
    assert shunned(["w:2", "w:1"], modes) == {"w:1": WorkerMode.DISABLED}


def test_times_are_printed_in_the_zone_they_carry() -> None:
    beat = replace(BEAT, created=BEAT.created.astimezone(UTC))
    assert beat.text().split(",")[5] == "2020-03-01 02:00:00"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.125, "0.13"), (0.375, "0.38"), (0.124, "0.12"), (0, "0.00"), (12.345678, "12.35")],
)
def test_numbers_are_rounded_half_up_to_two_decimals(number: float, text: str) -> None:
    assert replace(BEAT, load=number).text().split(",")[4] == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT.rpartition(",")[0],
        f"{TEXT},1",
        TEXT.replace("23871", "x"),
        TEXT.replace("0.12", "much"),
        TEXT.replace("2020-03-01 10:00:00", "yesterday"),
        TEXT.replace("2020-03-01 10:05:10", "2020-13-01 10:05:10"),
        TEXT.replace("23871", "1" * 5_000),
    ],
)
def test_what_is_no_heartbeat_is_none(text: str) -> None:
    assert Heartbeat.parse(text, zone=SHANGHAI) is None


# Addresses


@pytest.mark.parametrize(
    ("address", "number"),
    [
        ("0.0.0.0", 0),
        ("127.0.0.1", 2130706433),
        ("192.168.1.10", 3232235786),
        (" 192.168.1.10 ", 3232235786),
        ("255.255.255.255", 4294967295),
    ],
)
def test_the_number_of_an_address_is_unsigned(address: str, number: int) -> None:
    assert ip_number(address) == number


@pytest.mark.parametrize("address", ["", "256.0.0.1", "1.2.3", "::1", "localhost", "1.2.3.04"])
def test_what_is_no_address_has_no_number(address: str) -> None:
    with pytest.raises(ValueError):
        ip_number(address)


# Queue entries


def test_an_entry_for_any_worker_ends_in_minus_one() -> None:
    assert ENTRY.name == "2_12_2_45_-1"


def test_an_entry_for_some_addresses_names_their_numbers() -> None:
    entry = replace(ENTRY, hosts="3232235786,3232235787")
    assert entry.name == "2_12_2_45_3232235786,3232235787"


def test_an_entry_of_a_group_has_its_id_as_sixth_part() -> None:
    assert replace(ENTRY, worker_group_id=7).name == "2_12_2_45_-1_7"


def test_an_entry_that_yields_says_so_in_a_seventh_part() -> None:
    assert replace(ENTRY, yields=True).name == "2_12_2_45_-1_0_c"
    assert replace(ENTRY, yields=True, worker_group_id=7).name == "2_12_2_45_-1_7_c"


@pytest.mark.parametrize("yields", [False, True])
@pytest.mark.parametrize("group", [-1, 7])
@pytest.mark.parametrize("hosts", ["-1", "3232235786", "1,2"])
def test_an_entry_is_read_as_it_was_written(hosts: str, group: int, yields: bool) -> None:
    entry = replace(ENTRY, hosts=hosts, worker_group_id=group, yields=yields)
    assert QueueEntry.parse(entry.name) == entry


@pytest.mark.parametrize("yields", [False, True])
def test_an_entry_for_a_chosen_worker_suits_that_one_alone(*, yields: bool) -> None:
    worker = "w_1%5F.example.org:1234"
    entry = replace(ENTRY, worker=worker, yields=yields)
    assert entry.name.startswith("2_12_2_45_=w%5F1%255F.example.org:1234")
    assert QueueEntry.parse(entry.name) == entry
    assert entry.suits(group_ids=(), ip=None, address=worker)
    assert not entry.suits(group_ids=(3,), ip=ip_number("10.0.0.7"), address="w:1")
    assert not entry.is_for_any


def test_an_entry_of_four_parts_is_for_any_worker() -> None:
    assert QueueEntry.parse("2_12_2_45") == ENTRY


@pytest.mark.parametrize(
    "name", ["2_12_2_45", "02_12_2_0045_-1", "2_12_2_45_-1_0", "2_12_2_45_-1_07_c"]
)
def test_a_name_comes_out_as_it_went_in(name: str) -> None:
    entry = QueueEntry.parse(name)
    assert entry is not None
    assert entry.name == name
    kill = KillEntry.parse("w1:1234-045")
    assert kill is not None
    assert (kill.task_instance_id, kill.name) == (45, "w1:1234-045")


@pytest.mark.parametrize(
    "name",
    [
        *("", "2_12_2", "2_12_2_45_-1_7_8", "a_12_2_45_-1", "2_12_2__-1", "2_12_2_45_-1_x"),
        *("1.5_1_1_1", "2_12_2_45_-1_c", "2_12_2_45_-1_x_c", "2_12_2_45_-1_7_c_c"),
    ],
)
def test_a_name_that_no_master_wrote_is_none(name: str) -> None:
    assert QueueEntry.parse(name) is None


def test_a_name_of_thousands_of_digits_is_none() -> None:
    assert QueueEntry.parse(f"2_12_2_{'1' * 5_000}_-1") is None
    assert KillEntry.parse(f"w1:1234-{'1' * 5_000}") is None


def test_entries_sort_by_number_and_not_by_text() -> None:
    names = ["2_9_2_100_-1", "10_1_0_1_-1", "2_10_0_2_-1", "0_99_4_7_-1", "2_9_1_200_-1"]
    entries = [entry for name in names if (entry := QueueEntry.parse(name)) is not None]
    assert [entry.name for entry in sorted(entries, key=lambda entry: entry.sort_key)] == [
        "0_99_4_7_-1",
        "2_9_1_200_-1",
        "2_9_2_100_-1",
        "2_10_0_2_-1",
        "10_1_0_1_-1",
    ]


def test_entries_that_yield_sort_behind_all_others_of_their_priority() -> None:
    names = ["1_9_2_5_-1_0_c", "2_1_0_1_-1_0_c", "2_9_4_100_-1", "1_99_2_6_-1", "3_1_2_7_-1"]
    entries = [entry for name in names if (entry := QueueEntry.parse(name)) is not None]
    assert [entry.name for entry in sorted(entries, key=lambda entry: entry.sort_key)] == [
        "1_99_2_6_-1",
        "1_9_2_5_-1_0_c",
        "2_9_4_100_-1",
        "2_1_0_1_-1_0_c",
        "3_1_2_7_-1",
    ]


def test_t07_an_attempt_has_one_place_whatever_its_hosts() -> None:
    assert ENTRY.sort_key == replace(ENTRY, hosts="1,2", worker_group_id=7).sort_key


def test_an_entry_for_any_worker_suits_every_worker() -> None:
    assert ENTRY.suits(group_ids=(), ip=None)
    assert ENTRY.suits(group_ids=(3,), ip=5)


def test_an_entry_of_a_group_suits_its_workers_alone() -> None:
    entry = replace(ENTRY, worker_group_id=7)
    assert entry.suits(group_ids=(3, 7), ip=None)
    assert not entry.suits(group_ids=(3,), ip=None)
    assert not entry.suits(group_ids=(), ip=5)


def test_an_entry_without_a_group_suits_no_reserved_worker() -> None:
    assert not ENTRY.suits(group_ids=(), ip=5, is_reserved=True)
    assert not replace(ENTRY, yields=True).suits(group_ids=(7,), ip=5, is_reserved=True)
    assert replace(ENTRY, worker_group_id=7).suits(group_ids=(7,), ip=5, is_reserved=True)
    assert replace(ENTRY, hosts="5").suits(group_ids=(), ip=5, is_reserved=True)


def test_an_entry_for_addresses_suits_those_addresses_and_the_group() -> None:
    entry = replace(ENTRY, hosts="10,11", worker_group_id=7)
    assert entry.suits(group_ids=(), ip=11)
    assert entry.suits(group_ids=(7,), ip=None)
    assert not entry.suits(group_ids=(), ip=None)


@pytest.mark.parametrize("ip", [1, 0, 110, 323223578])
def test_t09_an_address_is_compared_whole_and_not_by_its_beginning(ip: int) -> None:
    assert not replace(ENTRY, hosts="3232235786,10,11").suits(group_ids=(), ip=ip)


# Kill entries


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("192.168.1.11:1234-45", "192.168.1.11:1234"),
        ("NULL-45", "NULL"),
        ("my-spark-host-2:1234-45", "my-spark-host-2:1234"),
        ("host--45", "host-"),
    ],
)
def test_t81_the_last_dash_divides_a_kill_entry(name: str, address: str) -> None:
    entry = KillEntry.parse(name)
    assert entry == KillEntry(address=address, task_instance_id=45)
    assert entry.name == name


@pytest.mark.parametrize("name", ["", "-45", "host", "host-", "host-x", "host-4.5", "host-+4"])
def test_a_kill_entry_that_nobody_wrote_is_none(name: str) -> None:
    assert KillEntry.parse(name) is None

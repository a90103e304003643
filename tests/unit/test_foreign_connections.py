"""The decision which connections go from one tenant's account to a listener of another's."""

from __future__ import annotations

from itertools import count

import pytest

from common.socket_table import Row, parsed
from worker.processes.foreign_connections import foreign_connections, is_on_loopback

PROD, DEV, ROOT, DAEMON = 2_001, 2_002, 0, 500
LOOPBACK, LOOPBACK_2, ALL = "0100007F", "0200007F", "00000000"
ALL_V6, LOOPBACK_V6 = "0" * 32, "0" * 24 + "01000000"
OWN, ELSEWHERE = "0A01000A", "0B01000A"
LISTENS, CONNECTED, QUEUED, CLOSED = "0A", "01", "02", "06"
_numbers = count(1)


def is_tenant(uid: int) -> bool:
    return uid not in (ROOT, DAEMON)


def listener(address: str = LOOPBACK, port: int = 4_000, *, uid: int = PROD) -> Row:
    return Row(address, port, ALL, 0, LISTENS, uid, next(_numbers))


def client(
    address: str = LOOPBACK, port: int = 4_000, *, uid: int = DEV, state: str = CONNECTED
) -> Row:
    number = next(_numbers)
    return Row(address, 30_000 + number, address, port, state, uid, number)


def accepted(other: Row, *, uid: int = PROD) -> Row:
    """Return the other end of a connection."""
    remote = (other.remote_address, other.remote_port, other.address, other.port)
    return Row(*remote, CONNECTED, uid, next(_numbers))


def test_a_connection_of_another_tenant_is_found_accepted_or_not() -> None:
    door = listener()
    clients = [client(), client(state=QUEUED)]
    (found,) = foreign_connections([*clients, accepted(clients[0]), door], is_tenant)
    assert (found.listener, found.clients) == (door, tuple(clients))


@pytest.mark.parametrize("uid", [PROD, ROOT, DAEMON])
def test_a_connection_of_the_same_account_root_or_the_daemon_is_not(uid: int) -> None:
    assert foreign_connections([listener(), client(uid=uid)], is_tenant) == []


@pytest.mark.parametrize("uid", [ROOT, DAEMON])
def test_any_account_may_connect_to_a_listener_of_root_or_the_daemon(uid: int) -> None:
    assert foreign_connections([listener(uid=uid), client()], is_tenant) == []


def test_a_closed_socket_and_one_that_no_program_has_are_not_found() -> None:
    gone = client()._replace(inode=0)
    assert foreign_connections([listener(), client(state=CLOSED), gone], is_tenant) == []


@pytest.mark.parametrize(
    ("at", "to"),
    [
        (ALL, LOOPBACK),
        (ALL, LOOPBACK_2),
        (ALL_V6, LOOPBACK),
        (ALL_V6, LOOPBACK_V6),
        (LOOPBACK_V6, LOOPBACK_V6),
    ],
)
def test_each_address_by_which_a_listener_is_reached_counts(at: str, to: str) -> None:
    assert len(foreign_connections([listener(at), client(to)], is_tenant)) == 1


def test_a_connection_to_another_address_of_this_computer_counts() -> None:
    other = client(OWN)
    assert len(foreign_connections([listener(ALL), other, accepted(other)], is_tenant)) == 1


def test_a_connection_to_the_same_port_of_another_computer_does_not_count() -> None:
    elsewhere = client(OWN)._replace(remote_address=ELSEWHERE)
    assert foreign_connections([listener(ALL), elsewhere], is_tenant) == []


def test_the_listener_of_an_address_is_preferred_to_one_of_all_addresses() -> None:
    own = listener(LOOPBACK_2, uid=DEV)
    table = [listener(ALL), own, client(LOOPBACK_2)]
    assert foreign_connections(table, is_tenant) == []


def test_a_listener_knows_whether_it_is_on_the_loopback() -> None:
    assert [is_on_loopback(listener(each)) for each in (LOOPBACK, LOOPBACK_V6)] == [True, True]
    assert [is_on_loopback(listener(each)) for each in (ALL, ALL_V6, OWN)] == [False] * 3


def test_an_ipv4_address_in_the_table_of_ipv6_is_read_as_one() -> None:
    head = (
        "  sl  local_address  remote_address  st tx_queue rx_queue tr tm->when retrnsmt uid ...\n"
    )
    mapped = "0000000000000000FFFF0000"
    line = f"   5: {mapped}0100007F:0FA0 {mapped}0100007F:C350 01 00000000:00000000"
    line += " 00:00000000 00000000  2002        0 91234 1 ffff888 20 4 30 10 -1\n"
    assert list(parsed(head + line)) == [Row(LOOPBACK, 4_000, LOOPBACK, 50_000, "01", DEV, 91_234)]


def test_a_table_of_twenty_thousand_connections_is_decided_completely() -> None:
    clients = [client() for _ in range(20_000)]
    table = [listener(), *clients, *map(accepted, clients)]
    (found,) = foreign_connections(table, is_tenant)
    assert found.clients == tuple(clients)

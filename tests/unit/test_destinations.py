"""The addresses that HTTP tasks may connect to."""

from __future__ import annotations

import pytest

from common.config import Config
from common.destinations import destinations, listed

DENIED = listed(Config().worker.http_denied)


def refusal(address: str, host: str = "h", *allowed: str) -> str | None:
    return destinations(allowed=allowed, denied=DENIED).refusal(host, address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:21f::1", "64:ff9b::5db8:d822"])
def test_the_public_internet_is_open(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
            "::",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
        ),
        *(
            "100.64.0.1",
            "192.0.0.8",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ),
        *("fd12::1", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "64:ff9b:1::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::1"),
        *("2001:0:a00:1::1", "3fff::1"),
    ],
)
def test_nothing_else_is_unless_it_is_allowed_x16(address: str) -> None:
    assert "no address of the public internet" in (refusal(address) or "")
    assert refusal(address, "h", "0.0.0.0/0", "::/0") is None
    assert refusal(address, "H.Example.com.", "h.example.com") is None
    assert refusal(address, "h.example.com", "*.example.com") is None
    assert refusal(address, "example.com.evil", "*.example.com", "example.com") is not None


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "fe80::1%eth0", "fd00:ec2::254", "fd00:ec2::23"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "100.100.100.200"),
        *("168.63.129.16", "fd20:ce::254"),
    ],
)
def test_where_clouds_give_keys_away_nobody_may_go_whatever_is_allowed(address: str) -> None:
    for allowed in ((), ("0.0.0.0/0", "::/0"), ("h",)):
        assert refusal(address, "h", *allowed) == "worker.http_denied forbids it"


@pytest.mark.parametrize(
    "text",
    ["10.1.2.3/8", "10.0.0/8", "1.2.3", "300.1.1.1", "http://h", "h:80", "*", "a b", "::1/x"],
)
def test_what_is_neither_a_network_nor_a_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        destinations(allowed=(text,), denied=())


def test_a_denied_host_is_refused_since_only_addresses_can_be_denied() -> None:
    with pytest.raises(ValueError, match="is no network"):
        destinations(allowed=(), denied=("example.com",))

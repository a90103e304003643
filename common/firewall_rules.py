"""Text of the nftables rules that keep tasks of tenants from the ports of a cluster.

Pure: values in, text for `nft -f` out. `common.embedded.firewall` loads it. A *trusted* account is
root, the owner of the home or the owner of a server's files. No tenant may have such an account.

PostgreSQL accepts a limited number of connections of each other account and of all of them
together, so it always has room for the daemons. ZooKeeper accepts none, because no task needs it.

Another table drops what a program of any other account sends from a port of the cluster. Such a
program cannot take the place of a daemon that is down, because no client completes a connection.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

_FAMILY: Final = "inet"
_DIGEST_LENGTH: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Connections of accounts that are not trusted: of each account, and of all of them."""

    each: int
    together: int


def table_of(home: Path, server: str) -> str:
    """Return the family and name of the table for a server; each home has separate tables."""
    digest = sha256(str(home).encode(errors="surrogateescape")).hexdigest()[:_DIGEST_LENGTH]
    return f"{_FAMILY} orcaflow_{server}_{digest}"


def removal(table: str) -> str:
    """Return the commands that remove a table, whether or not it exists."""
    return f"add table {table}\ndelete table {table}\n"


def ruleset(table: str, *, port: int, trusted: Collection[int], limits: Limits | None) -> str:
    """Return the commands that create or replace the table of a server in one transaction.

    Without `limits` the port is closed to all accounts that are not trusted.
    """
    accounts = ", ".join(str(uid) for uid in sorted(trusted))
    body = _closed(port, accounts) if limits is None else _limited(port, accounts, limits)
    return f"{removal(table)}table {table} {{\n{body}}}\n"


def answers(table: str, *, ports: Collection[int], trusted: Collection[int]) -> str:
    """Return the commands that create or replace the table of the ports of a cluster.

    Only programs of trusted accounts can send from these ports, at every address of the computer.
    """
    numbers = ", ".join(str(port) for port in sorted(ports))
    accounts = ", ".join(str(uid) for uid in sorted(trusted))
    # The first answer of a connection already has the account of the listener.
    return f"""\
{removal(table)}table {table} {{
  chain answers {{
    type filter hook output priority filter; policy accept;
    tcp sport {{ {numbers} }} meta skuid != {{ {accounts} }} drop
  }}
}}
"""


def mark(text: str) -> str:
    """Return the name of a chain which shows that the rules of this text are loaded."""
    return f"rules_{sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]}"


def marked(text: str) -> str:
    """Return the text with an empty chain that `mark` names."""
    return text.removesuffix("}\n") + f"  chain {mark(text)} {{ }}\n}}\n"


def _closed(port: int, accounts: str) -> str:
    # Nothing is counted here, so connection tracking would only cost time.
    return f"""\
  chain untracked {{
    type filter hook output priority raw; policy accept;
    oifname "lo" tcp dport {port} notrack
    oifname "lo" tcp sport {port} notrack
  }}
  chain closed {{
    type filter hook output priority filter; policy accept;
    oifname "lo" tcp dport {port} meta skuid != {{ {accounts} }} reject with tcp reset
  }}
"""


def _limited(port: int, accounts: str, limits: Limits) -> str:
    # The kernel counts connections by tracking them and drops new ones when its table is full. A
    # task could fill that table, so connections of trusted accounts are not tracked. An answer has
    # the account of the server, so the set of these clients decides there.
    others = f'oifname "lo" tcp dport {port} meta skuid != {{ {accounts} }} ct state new'
    return f"""\
  set clients {{
    type ipv4_addr . inet_service; size 65535; flags dynamic,timeout; timeout 1d;
  }}
  set accounts {{
    type uid; size 65535; flags dynamic;
  }}
  chain untracked {{
    type filter hook output priority raw; policy accept;
    oifname "lo" tcp dport {port} meta skuid {{ {accounts} }} \
update @clients {{ ip saddr . tcp sport }} notrack accept
    oifname "lo" tcp dport {port} delete @clients {{ ip saddr . tcp sport }}
    oifname "lo" tcp sport {port} ip daddr . tcp dport @clients notrack
  }}
  chain limited {{
    type filter hook output priority filter; policy accept;
    {others} add @accounts {{ meta skuid ct count over {limits.each} }} reject with tcp reset
    {others} ct count over {limits.together} reject with tcp reset
  }}
"""

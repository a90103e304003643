"""The text of the rules in front of the embedded servers."""

from __future__ import annotations

from pathlib import Path

from common.firewall_rules import Limits, answers, mark, marked, removal, ruleset, table_of

LIMITS = Limits(each=20, together=100)


def rules(*, limits: Limits | None, port: int = 2181) -> list[str]:
    text = ruleset("inet orcaflow", port=port, trusted={998, 0}, limits=limits)
    return [line.strip() for line in text.splitlines()]


def test_a_port_without_limits_is_closed_to_every_account_that_is_not_trusted() -> None:
    closed = 'oifname "lo" tcp dport 2181 meta skuid != { 0, 998 } reject with tcp reset'
    assert closed in rules(limits=None)


def test_each_account_and_all_of_them_together_have_a_limit() -> None:
    others = 'oifname "lo" tcp dport 5432 meta skuid != { 0, 998 } ct state new'
    found = rules(limits=LIMITS, port=5432)
    each = f"{others} add @accounts {{ meta skuid ct count over 20 }} reject with tcp reset"
    assert each in found
    assert f"{others} ct count over 100 reject with tcp reset" in found


def test_connections_of_daemons_are_not_tracked_so_a_full_table_does_not_refuse_them() -> None:
    daemons = (
        'oifname "lo" tcp dport 5432 meta skuid { 0, 998 } '
        "update @clients { ip saddr . tcp sport } notrack accept"
    )
    found = rules(limits=LIMITS, port=5432)
    assert daemons in found
    assert 'oifname "lo" tcp sport 5432 ip daddr . tcp dport @clients notrack' in found


def test_rules_replace_those_of_a_former_start() -> None:
    text = ruleset("inet orcaflow", port=2181, trusted={0}, limits=None)
    assert text.startswith(removal("inet orcaflow") + "table inet orcaflow {\n")
    assert removal("inet orcaflow") == "add table inet orcaflow\ndelete table inet orcaflow\n"


def test_each_server_of_each_home_has_a_table() -> None:
    names = {
        table_of(Path(home), server)
        for home in ("/srv/a", "/srv/b", "/srv/a\udcff; flush ruleset")
        for server in ("postgres", "zookeeper")
    }
    assert len(names) == 6
    # A path never becomes part of the text.
    assert all(name.replace("_", "").replace(" ", "").isalnum() for name in names)


def test_programs_of_other_accounts_send_nothing_from_the_ports_of_the_cluster() -> None:
    text = answers("inet orcaflow", ports={12345, 1234}, trusted={998, 0})
    assert "    tcp sport { 1234, 12345 } meta skuid != { 0, 998 } drop\n" in text
    assert text.startswith(removal("inet orcaflow") + "table inet orcaflow {\n")


def test_a_mark_shows_which_rules_are_loaded() -> None:
    first, second = (
        ruleset("inet orcaflow", port=port, trusted={0}, limits=LIMITS) for port in (1, 2)
    )
    assert f"  chain {mark(first)} {{ }}\n}}\n" in marked(first)
    assert mark(first) != mark(second)

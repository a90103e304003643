"""The matrix of rights: what each role is answered at each route, by the tables of policies alone.

`python -m api.matrix` prints it as it stands in `docs/security.md`; a test compares the two, and
others send every request of it.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Final

from api.console.serving import PAGES
from api.druid.serving import BASE as DRUID
from api.druid.serving import ROWS
from api.druid.table import Row
from api.policy import AUTHOR, LIST, POLICIES, Policy, Who
from common.model.rights import NOTHING, ROLES, Action


class Outcome(Enum):
    """The answer to a request, as far as rights decide it."""

    DONE = "done"
    UNAUTHENTICATED = "401"
    FORBIDDEN = "403"
    MISSING = "404"


CALLERS: Final = ("anyone", "nobody", *ROLES, "administrator")
"""The roles in a project, with those that have none: `anyone` has no token, `nobody` no grant, and
an administrator needs none. Whoever may do the most comes last."""

_HEAD: Final = "| route | no token | no role | {roles} | administrator | viewer to admin, foreign |"
_SHORT: Final = {
    Outcome.DONE: "yes",
    Outcome.UNAUTHENTICATED: "401",
    Outcome.FORBIDDEN: "403",
    Outcome.MISSING: "404",
}


def policy_of(row: Row) -> Policy:
    """Return the policy of a route of Druid's; a new supervisor is for a project."""
    is_new = (row.method, row.path) == ("POST", "supervisor")
    return Policy(takes=row.takes, thing="project" if is_new else row.thing)


def outcome(policy: Policy, caller: str, *, own: bool) -> Outcome:
    """Work out the answer to a caller; `own` is an object of the project of the caller's role."""
    if policy.takes is Who.ANYONE:
        return Outcome.DONE
    if caller == "anyone":
        return Outcome.UNAUTHENTICATED
    if caller == "administrator" or policy.takes is Who.USER or policy == LIST:
        return Outcome.DONE
    if policy.takes is Who.ADMINISTRATOR:
        is_unseen = policy.own and (caller == "nobody" or not own)
        return Outcome.MISSING if policy.hides or is_unseen else Outcome.FORBIDDEN
    if policy.takes is Who.AUTHOR:
        if not ROLES.get(caller, NOTHING) & Action.AUTHOR:
            return Outcome.FORBIDDEN
        return Outcome.DONE if own or policy.thing is None else Outcome.MISSING
    if policy.thing is None:
        # An order to all that one sees: whoever sees none is refused nothing.
        is_done = caller == "nobody" or ROLES[caller] & policy.takes
        return Outcome.DONE if is_done else Outcome.FORBIDDEN
    if caller == "nobody" or not own:
        return Outcome.MISSING
    return Outcome.DONE if ROLES[caller] & policy.takes else Outcome.FORBIDDEN


def table() -> str:
    """Return the matrix as a Markdown table; a list has what its caller may see."""
    lines = [_HEAD.format(roles=" | ".join(ROLES)), "|---" * (len(CALLERS) + 2) + "|"]
    of_druid = {f"{row.method} {DRUID}/{row.path}": policy_of(row) for row in ROWS}
    pages = {f"{page.method} {page.path}": page.policy for page in PAGES}
    for name, policy in {**POLICIES, **of_druid, **pages}.items():
        answers = [_SHORT[outcome(policy, caller, own=True)] for caller in CALLERS]
        if name in pages:
            answers[0] = "log in"
        foreign = _SHORT[outcome(policy, "admin", own=False)]
        if policy.lists or (policy.thing is None and isinstance(policy.takes, Action)):
            shown = ["its own" if each == _SHORT[Outcome.DONE] else each for each in answers[2:-1]]
            nobodys = "none" if answers[1] == _SHORT[Outcome.DONE] else answers[1]
            answers = [answers[0], nobodys, *shown, "all"]
            foreign = "left out"
        if policy.own:
            # Pools are an author's, tokens everybody's.
            for at, caller in enumerate(CALLERS[1:-1], 1):
                if policy.hides or outcome(AUTHOR, caller, own=True) is Outcome.DONE:
                    answers[at] += ", own: yes"
        lines.append(f"| `{name}` | {' | '.join(answers)} | {foreign} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())

"""Judges the end of a chaos run by its evidence: the violations of its invariants, as sentences.

Pure. It knows the definitions and what people asked, and asks no daemon. The rules hold whatever
was killed, frozen or lost meanwhile, once everything is at rest. Processes of attempts that were
given up (states 8 and 9) may have run on for a while beside others: the lines of those prove
nothing about order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.faults.facts import Attempt, Facts, Instance, Line
from tests.faults.workload import POOL, POOL_SIZE, SERIAL_DISCARD, SERIAL_PRIORITY, Expected

PAUSE, STOP, FAILURE, SUCCESS, LOST, KILL = 3, 5, 6, 7, 8, 9
ENDED_INSTANCES = frozenset({PAUSE, STOP, FAILURE, SUCCESS})
ENDED_ATTEMPTS = frozenset({PAUSE, FAILURE, SUCCESS, LOST, KILL})
GIVEN_UP = frozenset({LOST, KILL})

BEGINNING, STOPPING = frozenset({0}), 9
TAKEN, DROPPED, REFUSED = 1, 2, 3

Rule = Callable[[Facts, Mapping[str, Expected]], Iterator[str]]


def violations(facts: Facts, definitions: Mapping[str, Expected]) -> list[str]:
    """Return all violations; none if all is as it must be."""
    return [f"{name}: {text}" for name, rule in RULES.items() for text in rule(facts, definitions)]


def _commands(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """Each acknowledged command has one line in the ledger, and a refused one its error row."""
    entries = Counter(entry.command_id for entry in facts.ledger)
    waiting = set(facts.commands)
    for asked in facts.asked:
        if entries[asked.command_id] + (asked.command_id in waiting) != 1:
            times = entries[asked.command_id]
            yield f"command {asked.command_id} was acknowledged and entered {times} times"
    yield from (f"command {one} was entered {n} times" for one, n in entries.items() if n > 1)
    errors = Counter(facts.refused)
    for entry in facts.ledger:
        if errors[entry.command_id] != (entry.outcome == REFUSED):
            yield f"command {entry.command_id} has {errors[entry.command_id]} rows of errors"


def _instances_begun(facts: Facts, definitions: Mapping[str, Expected]) -> Iterator[str]:
    """Each acknowledged command to begin has one instance, unless it was dropped or refused.

    A run that is discarded, since another one of its definition is live, is dropped and has a row.
    """
    begun = Counter(each.command_id for each in facts.instances if not each.parent)
    outcome = {entry.command_id: entry.outcome for entry in facts.ledger}
    acknowledged = {each.command_id: each for each in facts.asked if each.command_type in BEGINNING}
    for command, asked in sorted(acknowledged.items()):
        discards = definitions[asked.definition].execution_type == SERIAL_DISCARD
        wanted = outcome.get(command) in ((TAKEN, DROPPED) if discards else (TAKEN,))
        if begun[command] != wanted:
            yield f"command {command} has begun {begun[command]} instances, not {int(wanted)}"
    foreign = [command for command in begun if command not in acknowledged]
    if len(foreign) > facts.unsure:
        yield f"instances were begun by {foreign}, and {facts.unsure} commands got no answer"
    yield from (
        f"command {command} has begun {begun[command]} instances"
        for command in foreign
        if begun[command] > 1
    )


def _children(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """A sub process has a parent attempt, and a node of a run one child at most."""
    attempts = {each.id: each for each in facts.attempts}
    nodes: Counter[tuple[int, str]] = Counter()
    for child in facts.instances:
        if child.parent:
            parent = attempts.get(child.parent)
            if parent is None or parent.type != "SUB_PROCESS":
                yield f"instance {child.id} has no parent attempt {child.parent}"
            else:
                nodes[parent.instance, parent.name] += 1
    for (instance, name), count in nodes.items():
        if count > 1:
            yield f"node {name!r} of instance {instance} has {count} children"


def _ends(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """Every instance and every attempt has ended, and each end was taken into account."""
    for instance in facts.instances:
        if instance.state not in ENDED_INSTANCES or not instance.has_ended:
            yield f"instance {instance.id} ({instance.definition}) is in state {instance.state}"
    for attempt in facts.attempts:
        if attempt.state not in ENDED_ATTEMPTS:
            yield f"{_named(attempt)} is in state {attempt.state}"
        elif not attempt.is_settled:
            yield f"the end of {_named(attempt)} was not taken into account"
        if attempt.is_lost:
            yield f"nobody has looked for what {_named(attempt)} has left running"


def _begun_once(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """No attempt is begun twice, under another number, without a row, or after its withdrawal."""
    rows = {each.id: each for each in facts.attempts}
    for attempt, times in Counter(each.attempt for each in _of("begin", facts)).items():
        row = rows.get(attempt)
        if times > 1:
            yield f"attempt {attempt} was begun {times} times"
        if row is None:
            yield f"attempt {attempt} was begun and has no row"
        elif row.state == PAUSE:
            yield f"{_named(row)} was begun though it was withdrawn by a pause"
    for line in facts.lines:
        row = rows.get(line.attempt)
        if row is not None and row.number != line.number:
            yield f"{_named(row)} was run as number {line.number}"


def _numbers(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """Attempts are numbered 1, 2, 3, …, and charged retries stay within their limit."""
    for (instance, name), attempts in _by_node(facts).items():
        numbers = [each.number for each in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"node {name!r} of instance {instance} has the attempts {numbers}"
        if any(each.retries > each.max_retries for each in attempts):
            yield f"node {name!r} of instance {instance} was retried too often"


def _one_success(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """A node has one valid attempt at most, and a success or failure is what the process did."""
    done = {each.attempt for each in _of("end", facts)}
    failed = {each.attempt for each in _of("fail", facts)}
    for (instance, name), attempts in _by_node(facts).items():
        valid = [each for each in attempts if each.is_valid]
        if len(valid) > 1:
            yield f"node {name!r} of instance {instance} has {len(valid)} valid attempts"
        for each in attempts:
            if each.type != "SHELL":
                continue
            if each.state == SUCCESS and each.id not in done:
                yield f"{_named(each)} is a success, and its process has not come to its end"
            if each.state == FAILURE and each.id not in failed:
                yield f"{_named(each)} is a failure that its process has not reported"


def _states(facts: Facts, definitions: Mapping[str, Expected]) -> Iterator[str]:
    """The state of an instance follows from its tasks and from what was asked."""
    stopped = _asked_to_stop(facts)
    valid: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in facts.attempts:
        if attempt.is_valid:
            valid[attempt.instance].append(attempt)
    for instance in facts.instances:
        expected = definitions[instance.definition]
        rows = valid[instance.id]
        is_good = frozenset(each.name for each in rows if each.state == SUCCESS) in expected.good
        if not _is_right(instance, rows, is_good, expected, instance.id in stopped):
            states = {each.name: each.state for each in rows}
            wanted = f" (wanted {instance.wanted})" if instance.wanted else ""
            yield (
                f"instance {instance.id} ({instance.definition}) ended as {instance.state}{wanted}"
                f" with {states}"
            )


def _is_right(
    instance: Instance,
    rows: list[Attempt],
    is_good: bool,
    expected: Expected,
    is_asked_to_stop: bool,
) -> bool:
    match instance.state:
        case state if state == SUCCESS:
            return is_good
        case _ if is_good:
            return False
        case state if state == STOP:
            # One that is stopped while it waits for its turn, for the first time or resumed from a
            # pause, ends at once and has no intent; so does one that is discarded.
            is_discarded = not rows and expected.execution_type == SERIAL_DISCARD
            waited = is_asked_to_stop and (not rows or expected.is_serial)
            return instance.wanted == STOP or waited or is_discarded
        case state if state == PAUSE:
            return instance.wanted == PAUSE
        case state if state == FAILURE:
            return any(each.state == FAILURE and each.name in expected.may_fail for each in rows)
        case _:
            return True  # It has not ended, which is another rule's matter.


def _kills(facts: Facts, definitions: Mapping[str, Expected]) -> Iterator[str]:
    """Only what somebody asked to stop is killed, or what a failure or a later run ends."""
    stopped = _asked_to_stop(facts)
    instances = {each.id: each for each in facts.instances}
    for attempt in facts.attempts:
        instance = instances[attempt.instance]
        expected = definitions[instance.definition]
        may_be = expected.may_fail or expected.execution_type == SERIAL_PRIORITY
        if attempt.state == KILL and (instance.root or instance.id) not in stopped and not may_be:
            yield f"{_named(attempt)} was killed though nobody asked for it"


def _order(facts: Facts, definitions: Mapping[str, Expected]) -> Iterator[str]:
    """A task begins after those above it have ended, and after the end of its former attempt."""
    rows = {each.id: each for each in facts.attempts}
    instances = {each.id: each for each in facts.instances}
    ended: set[tuple[int, str]] = set()
    latest: dict[tuple[int, str], int] = {}
    for line in facts.lines:
        row = rows.get(line.attempt)
        if row is None:
            continue
        node = row.instance, row.name
        if line.word != "begin":
            ended.add(node)
            if row.state not in GIVEN_UP and row.number < latest.get(node, 0):
                yield f"{_named(row)} ended after its successor had begun"
            continue
        latest[node] = max(latest.get(node, 0), row.number)
        expected = definitions[instances[row.instance].definition]
        for above in expected.above.get(row.name, ()):
            if (row.instance, above) not in ended:
                yield f"{_named(row)} was begun before {above!r} had ended"


def _together(facts: Facts, definitions: Mapping[str, Expected]) -> Iterator[str]:
    """A pool's tasks and the runs of a serial definition are no more at a time than they may be."""
    rows = {each.id: each for each in facts.attempts if each.state not in GIVEN_UP}
    instances = {each.id: each for each in facts.instances}
    finished = {each.attempt for each in facts.lines if each.word != "begin"}
    running: dict[str, set[int]] = defaultdict(set)
    for line in facts.lines:
        row = rows.get(line.attempt)
        if row is None or row.id not in finished:
            continue  # A process without a last line shows when it began, and not when it ended.
        expected = definitions[instances[row.instance].definition]
        limits = {POOL: POOL_SIZE} if row.name in expected.narrow else {}
        if expected.is_serial:
            limits[expected.name] = 1
        for name, limit in limits.items():
            if line.word != "begin":
                running[name].discard(row.id)
                continue
            running[name].add(row.id)
            if len(running[name]) > limit:
                yield f"attempts {sorted(running[name])} of {name!r} ran together; {limit} may"


def _leftovers(facts: Facts, _: Mapping[str, Expected]) -> Iterator[str]:
    """No process, queue entry, claim, kill, slot of a pool or command is left."""
    for process in facts.running:
        yield f"process {process.pid} of attempt {process.attempt} is left"
    kept: dict[str, Iterable[object]] = {
        "command": facts.commands,
        "queue entry": facts.queued,
        "claim": facts.claimed,
        "kill": facts.kills,
        "slot of attempt": facts.slots,
    }
    for kind, found in kept.items():
        yield from (f"{kind} {each} is left" for each in found)


RULES: Mapping[str, Rule] = {
    "commands": _commands,
    "instances begun": _instances_begun,
    "children": _children,
    "ends": _ends,
    "begun once": _begun_once,
    "numbers": _numbers,
    "one success": _one_success,
    "states": _states,
    "kills": _kills,
    "order": _order,
    "together": _together,
    "leftovers": _leftovers,
}
"""All rules by name."""


def _asked_to_stop(facts: Facts) -> frozenset[int]:
    asked = {each.instance for each in facts.asked if each.command_type == STOPPING}
    return frozenset(asked | set(facts.unsure_stops))


def _of(word: str, facts: Facts) -> Iterator[Line]:
    return (line for line in facts.lines if line.word == word)


def _by_node(facts: Facts) -> dict[tuple[int, str], list[Attempt]]:
    found: dict[tuple[int, str], list[Attempt]] = defaultdict(list)
    for attempt in sorted(facts.attempts, key=lambda each: each.number):
        found[attempt.instance, attempt.name].append(attempt)
    return found


def _named(attempt: Attempt) -> str:
    where = f"{attempt.name!r} of instance {attempt.instance}, number {attempt.number}"
    return f"attempt {attempt.id} ({where})"

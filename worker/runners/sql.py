"""The program behind SQL tasks: runs statements in order on one connection, each by itself.

A plain query of PostgreSQL is read through a cursor of the server, since its driver would else hold
the whole result in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worker.result_table import Result, write_csv
from worker.runners.database import Database, failing, run_on_database
from worker.runners.job import Job, JobError, read_job

_FETCH = 1_000
_COMMENT = re.compile(r"\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/)", re.DOTALL)
_PLAIN = re.compile(r"[\s(]*(select|values|table|with)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(insert|update|delete|merge|into)\b", re.IGNORECASE)
_LINE = re.compile(r"^LINE ([0-9]+):", re.MULTILINE)


def main() -> None:
    run_on_database(read_job(), work)


def work(job: Job, database: Database) -> None:
    document = job.document
    for statement in document["before"]:
        _execute(job, database, statement)
    if document["is_query"]:
        _query(job, database, document["main"][0])
    else:
        for statement in document["main"]:
            _execute(job, database, statement)
    for statement in document["after"]:
        _execute(job, database, statement)


def _execute(job: Job, database: Database, statement: Mapping[str, Any]) -> None:
    result = database.run(statement["place"], statement["texts"], statement["values"])
    for line in database.notices():
        job.say(line)
    count = result.rowcount
    # Rows that a statement returns besides are nobody's.
    result.close()
    database.commit()
    rows = f"{count} row{'' if count == 1 else 's'}" if count >= 0 else "done"
    job.say(f"{statement['place']}: {rows}")


def _query(job: Job, database: Database, statement: Mapping[str, Any]) -> None:
    document = job.document
    columns, rows = _rows(database, statement)
    result = Result(columns, rows_shown=document["rows_shown"], outputs=job.outputs)
    path = Path(document["result_file"])
    with failing(statement["place"]):
        write_csv(path, result, rows)
    database.commit()
    for line in database.notices():
        job.say(line)
    if document["title"]:
        job.say(document["title"])
    job.say(result.table())
    counted = f"{result.count:,} row{'' if result.count == 1 else 's'}"
    shown = min(result.count, document["rows_shown"])
    first = f", the first {shown} above" if shown < result.count else ""
    job.say(f"{counted}{first}; as CSV in {path}")
    job.put_out(result.outputs())


def _rows(
    database: Database, statement: Mapping[str, Any]
) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
    place, texts, values = statement["place"], list(statement["texts"]), statement["values"]
    whole = " ".join(texts)
    if database.dialect == "postgresql" and _is_plain(whole):
        # A cursor needs a transaction; one that is the author's own is not ours to end.
        is_ours = not database.in_transaction()
        if is_ours:
            database.run(place, ["BEGIN"], []).close()
        # On a line of its own, so that the line which an error shows is the author's.
        texts[0] = f"DECLARE orcaflow_result NO SCROLL CURSOR FOR\n{texts[0]}"
        try:
            database.run(place, texts, values).close()
        except JobError as error:
            raise JobError(_LINE.sub(_one_less, str(error))) from None
        first = database.run(place, [f"FETCH {_FETCH} FROM orcaflow_result"], [])
        return list(first.keys()), _fetched(database, place, first, is_ours=is_ours)
    result = database.run(place, texts, values)
    if not result.returns_rows:
        raise JobError(f"{place}: it returns no rows; a statement that does not has sqlType 1")
    return list(result.keys()), _partitions(result)


def _one_less(line: re.Match[str]) -> str:
    return f"LINE {int(line[1]) - 1}:"


def _is_plain(statement: str) -> bool:
    """True if PostgreSQL takes it as a cursor; doubtful ones are run without."""
    position = 0
    while (comment := _COMMENT.match(statement, position)) is not None and comment.end() > position:
        position = comment.end()
    return _PLAIN.match(statement, position) is not None and not _WRITES.search(statement)


def _fetched(
    database: Database, place: str, first: Any, *, is_ours: bool
) -> Iterator[Sequence[Any]]:
    rows = first.fetchall()
    while rows:
        yield from rows
        if len(rows) < _FETCH:
            break
        rows = database.run(place, [f"FETCH {_FETCH} FROM orcaflow_result"], []).fetchall()
    database.run(place, ["CLOSE orcaflow_result"], []).close()
    if is_ours:
        database.run(place, ["COMMIT"], []).close()


def _partitions(result: Any) -> Iterator[Sequence[Any]]:
    for rows in result.partitions(_FETCH):
        yield from rows


if __name__ == "__main__":
    main()

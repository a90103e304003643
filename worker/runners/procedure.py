"""The program behind PROCEDURE tasks: one CALL, or one SELECT from a function, in PostgreSQL.

Which of both it is says the catalogue. The name was checked by the worker and is quoted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.params.values import Value
from worker.result_table import Result
from worker.runners.database import Database, failing, run_on_database
from worker.runners.job import Job, JobError, read_job

_KINDS = """
SELECT DISTINCT p.prokind FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = ?
AND CASE WHEN ? = '' THEN pg_function_is_visible(p.oid) ELSE n.nspname = ? END
"""
_PROCEDURE = "p"
_FUNCTION = "f"


def main() -> None:
    run_on_database(read_job(), work)


def work(job: Job, database: Database) -> None:
    document = job.document
    schema, method = document["schema"], document["method"]
    place = f"{schema}.{method}" if schema else method
    given = ("VARCHAR", schema)
    found = database.run(place, _KINDS.split("?"), [("VARCHAR", method), given, given]).fetchall()
    kinds = {row[0] for row in found}
    is_procedure = _PROCEDURE in kinds
    if not is_procedure and _FUNCTION not in kinds:
        raise JobError(f"{place}: there is no such procedure or function in this database")
    arguments = document["arguments"]
    texts, values = _call(schema, method, arguments, is_procedure=is_procedure)
    returned = database.run(place, texts, values)
    for line in database.notices():
        job.say(line)
    outs = [each["name"] for each in arguments if each["out"]]
    if not returned.returns_rows:
        job.say(f"{place}: done")
        if outs:
            raise JobError(f"{place}: it gives nothing back, so {', '.join(outs)} has no value")
        return
    with failing(place):
        columns = _named(list(returned.keys()), outs)
        result = Result(columns, rows_shown=10, outputs=job.outputs)
        for rows in returned.partitions(1_000):
            for row in rows:
                result.take(row)
    database.commit()
    job.say(f"{place}: {result.count} row{'' if result.count == 1 else 's'}")
    values_out = result.outputs()
    missing = [name for name in outs if name not in values_out]
    if missing:
        raise JobError(
            f"{place}: it gives back {', '.join(columns)}; no value for {', '.join(missing)}"
        )
    if outs:
        for name, value in values_out.items():
            job.say(f"OUT {name} = {value[:200]}")
    elif result.count:
        job.say(result.table())
    job.put_out(values_out)


def _call(
    schema: str, method: str, arguments: list[Mapping[str, Any]], *, is_procedure: bool
) -> tuple[list[str], list[Value]]:
    """A procedure has a place for each OUT argument, a function has none."""
    name = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, method) if part)
    pieces = [f"{'CALL' if is_procedure else 'SELECT * FROM'} {name}("]
    values: list[Value] = []
    count = 0
    for each in arguments:
        if each["out"] and not is_procedure:
            continue
        if count:
            pieces[-1] += ", "
        count += 1
        if each["out"]:
            pieces[-1] += "NULL"
        else:
            kind, text = each["value"]
            values.append((kind, text))
            pieces.append("")
    pieces[-1] += ")"
    return pieces, values


def _named(columns: list[str], outs: list[str]) -> list[str]:
    """Columns by the parameters' names where these differ but their numbers agree."""
    lower = {column.lower() for column in columns}
    if len(columns) == len(outs) and not all(name.lower() in lower for name in outs):
        return outs
    return columns


if __name__ == "__main__":
    main()

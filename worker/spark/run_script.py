"""The driver of a PYSPARK task: makes a session, runs the author's script in it, stops the session.

    python run_script.py SESSION.json SCRIPT [ARGUMENT…]

Run as a program by its path, in an interpreter that has pyspark and perhaps nothing else of
Orcaflow's, so it imports the standard library and pyspark only. The script is `__main__`, with
`spark` and `params` in its global names; its tracebacks begin in the script itself.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types
from pathlib import Path


def main() -> int:
    session_file, script, *arguments = sys.argv[1:]
    source = Path(script).read_bytes()
    try:
        code = compile(source, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        # Before the session is made: its author need not wait seconds for this.
        traceback.print_exc(limit=0)
        return 1
    params = json.loads(Path(os.environ["ORCAFLOW_PARAMS"]).read_text(encoding="utf-8"))
    wanted = json.loads(Path(session_file).read_text(encoding="utf-8"))

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(wanted["name"]).master(wanted["master"])
    for key, value in wanted["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, spark=spark, params=params)
    # Functions of the script are sent to Spark's workers by value, as those of any `__main__` are.
    sys.modules["__main__"] = module
    sys.argv[:] = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        exec(code, module.__dict__)  # noqa: S102  # Running the script is what this is for.
    except SystemExit as end:
        return exit_code(end)
    except BaseException as error:  # noqa: BLE001  # Told to the author, as Python would.
        report(error)
        return 1
    finally:
        sys.stdout.flush()
        spark.stop()
    return 0


def exit_code(end: SystemExit) -> int:
    """What `sys.exit` was given: nothing, a number, or words to say before failing."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1


def report(error: BaseException) -> None:
    """Print the traceback without the frame of `main`."""
    trace = error.__traceback__
    traceback.print_exception(type(error), error, trace.tb_next if trace else None)


if __name__ == "__main__":
    sys.exit(main())

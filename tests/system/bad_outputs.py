"""Outputs of tasks that no worker can take."""

from __future__ import annotations

from pathlib import Path

from tests.system.cluster import a_task


def put_out(name: str, script: str) -> dict[str, object]:
    """A task that may put out the parameter 'x'."""
    local = [{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": ""}]
    return a_task(name, "", params={"rawScript": script, "localParams": local})


def bad_outputs(secret: Path) -> dict[str, tuple[str, str]]:
    """Scripts that put out what can't be taken, one of them the `secret`, and the cause of each."""
    file = '"$ORCAFLOW_OUTPUT"'
    return {
        "a million": ("seq -f '${setValue(p%.0f=1)}' 1000000", "more than 1,000 parameters"),
        "a million in the file": (
            f"seq -f '{{\"p%.0f\": 1}}' 1000000 > {file}",
            "it may have 1,048,576",
        ),
        "two thousand in the file": (
            f"seq -f '{{\"p%.0f\": 1}}' 2000 > {file}",
            "more than 1,000 parameters",
        ),
        "a long value": (
            "printf '${setValue(x=' && head -c 1000000 /dev/zero | tr '\\0' y && echo ')}'",
            "longer than 65,536 bytes",
        ),
        "a long value in the file": (
            f"(printf '{{\"x\": \"'; head -c 1000000 /dev/zero | tr '\\0' y; echo '\"}}') > {file}",
            "all together may have 65,536",
        ),
        "no JSON": (f"echo '{{broken' > {file}", "line 1: not valid JSON"),
        "no object": (f"printf '\\n[1]\\n' > {file}", "line 2: must be a JSON object"),
        "nested": (f"head -c 50000 /dev/zero | tr '\\0' '[' > {file}", "not valid JSON"),
        "digits": (
            f"(printf '{{\"x\": '; head -c 50000 /dev/zero | tr '\\0' 9; echo '}}') > {file}",
            "not valid JSON",
        ),
        "infinite": (f"echo '{{\"x\": Infinity}}' > {file}", "not valid JSON"),
        "directory": (f"rm -f {file}; mkdir {file}", "no ordinary file"),
        "link": (f"ln -sf '{secret}' {file}", "can't be read"),
        "pipe": (f"rm -f {file}; mkfifo {file}", "no ordinary file"),
        "device": (f"ln -sf /dev/zero {file}", "can't be read"),
    }

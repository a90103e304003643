"""The config of an environment: read as a shell would, with its secrets replaced in place."""

from __future__ import annotations

import json
import subprocess

import pytest

from common.environment_config import (
    EnvironmentConfigError,
    assignments,
    changed_secrets,
    masked,
    unmasked,
    variables,
)

CONFIG = r"""# Java
export JAVA_HOME=/opt/java
export PATH=$JAVA_HOME/bin:"$PATH:${NONE}a b"  Q='x $y' # at the end
export W=a\ b\$c"d'\"e\n"; export E=
  export GLOB=/x/*.jar:[a]?
export LINES="one
two" AGAIN=${Q}/$W
export DB_PASSWORD="hun 'ter' 2" API_TOKEN=t
"""


def test_a_config_is_read_as_a_shell_reads_it() -> None:
    base = {"PATH": "/bin:/usr/bin"}
    found = variables(CONFIG, base)
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{CONFIG}\n/usr/bin/env -0"], env=base, capture_output=True, check=True
    )
    said = dict(each.split("=", 1) for each in shell.stdout.decode().split("\0") if each)
    assert found == {name: said[name] for name in found}
    assert found.keys() >= {"JAVA_HOME", "PATH", "W", "E", "LINES", "AGAIN"}


def test_secrets_are_masked_and_a_mask_keeps_what_was_there() -> None:
    shown = masked(CONFIG)
    assert "hun" not in shown
    assert "export DB_PASSWORD=****** API_TOKEN=******" in shown
    assert unmasked(shown, CONFIG) == CONFIG
    changed = unmasked(shown.replace("API_TOKEN=******", "API_TOKEN=u"), CONFIG)
    assert variables(changed, {})["API_TOKEN"] == "u"
    # Without a former value the mask is one.
    assert variables(unmasked("export A_TOKEN=******", ""), {}) == {"A_TOKEN": "******"}
    assert masked("rm -rf /") == "******"


def test_secrets_alone_are_encrypted_as_they_are_written() -> None:
    seen: list[str] = []

    def sealed(text: str) -> str:
        seen.append(text)
        return text.replace("b c", "sealed")

    changed = changed_secrets("export A=1 A_SECRET='b c' # x", sealed)
    assert seen == [json.dumps({"A_SECRET": "'b c'"})]
    assert changed == "export A=1 A_SECRET='sealed' # x"


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ("source /etc/profile", "line 1: only lines like export NAME=value"),
        ("export A=1\nls", "line 2: only lines like"),
        ("export A=$(id)", "after \\$ comes the name of a variable"),
        ("export A=`id`", "would run a program"),
        ('export A="`id`"', "would run a program"),
        ("export A=${B:-c}", "after \\$ comes"),
        ("export A", "after export comes NAME=value"),
        ("export 1A=2", "after export comes NAME=value"),
        ("export A='b", "a quote is never closed"),
        ('export A="b', "a quote is never closed"),
        ("export A=b;ls", "only lines like"),
        ("export A=b&", "& needs quotes"),
        ("export A=~/b", "~ needs quotes"),
        ("export ORCAFLOW_PARAMS=x", "the worker's own"),
        ("export A=\0", "NUL"),
        ("export A=" + "a" * 70_000, "65,536"),
    ],
)
def test_what_would_need_a_shell_is_refused_with_its_line(config: str, cause: str) -> None:
    with pytest.raises(EnvironmentConfigError, match=cause):
        assignments(config)

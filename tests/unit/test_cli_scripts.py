"""The scripts in `bin/`: they report missing requirements in a sentence, and redo nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ("orcaflow", "orcaflow-daemon.sh", "start-all.sh", "stop-all.sh", "lib/venv.sh")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with scripts, a description, and an installation that only looks like one."""
    made = tmp_path / "a checkout"
    shutil.copytree(ROOT / "bin", made / "bin")
    (made / "pyproject.toml").write_text("[project]\n")
    (made / "constraints.txt").write_text("x==1\n")
    programs = made / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("orcaflow", 'echo "orcaflow $*"'), ("python", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return made


def stamp(checkout: Path, extras: str = "") -> None:
    described = subprocess.run(
        ["sh", "-c", "cat pyproject.toml constraints.txt | cksum"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (checkout / ".venv" / ".orcaflow-installed").write_text(f"{described} {checkout}\n{extras}\n")


def shell(checkout: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has sourced the shared part."""
    text = f'set -eu\nroot="{checkout}"\n. "$root/bin/lib/venv.sh"\n{script}'
    return subprocess.run(
        [shutil.which("sh") or "/bin/sh", "-c", text],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with the plain tools and without Python and Java."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in ("sh", "sed", "head", "awk", "df", "cat", "cksum", "basename", "dirname"):
        (folder / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return str(folder)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_plain_posix_shell(script: str) -> None:
    subprocess.run(["sh", "-n", str(ROOT / "bin" / script)], check=True)
    if not script.startswith("lib/"):
        assert os.access(ROOT / "bin" / script, os.X_OK)


def test_an_installation_that_is_current_is_used_as_it_is(checkout: Path) -> None:
    stamp(checkout)
    script = str(checkout / "bin" / "orcaflow-daemon.sh")
    done = subprocess.run(
        [script, "status", "--port", "1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "orcaflow server status --port 1\n")


def test_a_script_may_be_called_through_a_link(checkout: Path, tmp_path: Path) -> None:
    stamp(checkout)
    link = tmp_path / "link"
    link.symlink_to(checkout / "bin" / "stop-all.sh")
    done = subprocess.run([str(link), "--now"], capture_output=True, text=True, check=False)
    assert done.stdout == "orcaflow server stop standalone-server --now\n"


@pytest.mark.parametrize(
    ("change", "extras"),
    [
        ("echo 'y==2' >> \"$root/constraints.txt\"", ""),
        ("echo '# new' >> \"$root/pyproject.toml\"", ""),
        ('rm "$root/.venv/bin/orcaflow"', ""),
        ("true", "examples"),
    ],
)
def test_an_installation_that_is_not_what_is_wanted_is_made_again(
    checkout: Path, change: str, extras: str
) -> None:
    stamp(checkout, "test")
    assert shell(checkout, "orcaflow_install() { echo made; }\norcaflow_venv test").stdout == ""
    done = shell(checkout, f"{change}\norcaflow_install() {{ echo made; }}\norcaflow_venv {extras}")
    assert (done.returncode, done.stdout) == (0, "made\n")


def test_an_installation_has_a_pinned_pip_and_no_setuptools(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\necho "$@" >>"{checkout}/calls"\n')
    python.chmod(0o755)
    done = shell(
        checkout, "venv=$root/.venv\nstamp=$venv/stamp\nwanted=x\norcaflow_install python3"
    )
    assert done.returncode == 0, done.stderr
    pip = "-m pip --disable-pip-version-check --no-input"
    _, first, second, third = (checkout / "calls").read_text().splitlines()
    assert re.fullmatch(rf"{pip} install pip==[0-9.]+", first)
    assert second == f"{pip} uninstall --yes setuptools"
    assert third.startswith(f"{pip} install --progress-bar off -c {checkout}/constraints.txt -e ")


def test_a_missing_java_is_reported_with_the_cure(checkout: Path, bare_path: str) -> None:
    done = shell(checkout, "orcaflow_need_java", PATH=bare_path, JAVA_HOME="")
    assert done.returncode == 78
    assert "Java is missing: install Java 17 or 21" in done.stderr


def test_a_missing_python_is_reported_with_the_cure(checkout: Path, bare_path: str) -> None:
    done = shell(checkout, "orcaflow_venv", PATH=bare_path)
    assert done.returncode == 78
    assert "Python 3.11 or later is missing" in done.stderr


def test_a_full_disk_is_reported_before_anything_is_made(checkout: Path) -> None:
    done = shell(checkout, "orcaflow_need_disk 999999999")
    assert done.returncode == 78
    assert "MB are needed" in done.stderr


def test_an_unknown_action_is_a_usage_error(checkout: Path) -> None:
    done = subprocess.run(
        [str(checkout / "bin" / "orcaflow-daemon.sh"), "frobnicate"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "start|stop|restart|status" in done.stderr

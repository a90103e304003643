"""Two accounts of this computer that own nothing, and a Python that they may use, for tests by root."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from worker import tenants
from worker.workspace import Account

_SYSTEM_PYTHON = "/usr/bin/python3"
_PYTHONS = (sys.executable, _SYSTEM_PYTHON, "/usr/local/bin/python3")
_VERSION = "import sys; print(sys.version_info[:2])"
_ASK = "import sys, encodings, pyspark; print(sys.version_info[:2])"

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as other accounts")


def accounts(folder: Path) -> tuple[Account, Account]:
    """Two accounts that every Linux has, each with a home in this folder; skips without them."""
    return _account("nobody", folder), _account("daemon", folder)


def a_python(folder: Path, account: Account) -> str:
    """An interpreter with this one's packages that other accounts may use; skips if none can be.

    This one's own may lie where they have no access.
    """
    if _works(sys.executable, account):
        return sys.executable
    made = folder / "python"
    if made.exists():
        return str(made / "bin" / "python")
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(_SYSTEM_PYTHON)
    (made / "pyvenv.cfg").write_text("home = /usr/bin\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (made / "lib" / version).mkdir(parents=True)
    packages = Path(pytest.__file__).parents[1]
    (made / "lib" / version / "site-packages").symlink_to(packages)
    for each in (made, *made.rglob("*")):
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o755)
    python = str(made / "bin" / "python")
    if not _works(python, account):
        pytest.skip(f"other accounts may use neither {sys.executable} nor {_SYSTEM_PYTHON} with it")
    return python


def bare_python(account: Account) -> str:
    """An interpreter that an account may use, whatever its packages; skips if there is none."""
    for python in _PYTHONS:
        if _asked(python, account, _VERSION):
            return python
    pytest.skip(f"account {account.name} may use none of {', '.join(_PYTHONS)}")


def _account(name: str, folder: Path) -> Account:
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        pytest.skip(f"there is no account {name}")
    known = tenants.account_with(uid)
    assert known is not None
    home = folder / f"home-{name}"
    home.mkdir(mode=0o700)
    os.chown(home, known.uid, known.gid)
    return Account(
        name=known.name, uid=known.uid, gid=known.gid, groups=known.groups, home=str(home)
    )


def _works(python: str, account: Account) -> bool:
    return _asked(python, account, _ASK) == str(sys.version_info[:2])


def _asked(python: str, account: Account, script: str) -> str:
    """Return what a script prints as an account; "" if that may not use the interpreter."""
    try:
        done = subprocess.run(
            [python, "-c", script],
            user=account.uid,
            group=account.gid,
            extra_groups=(),
            env={"PATH": os.environ["PATH"], "HOME": account.home},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip()

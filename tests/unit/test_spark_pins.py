"""The pinned packages are versions that PySpark supports: all its public modules can be imported."""

from __future__ import annotations

import subprocess
import sys

_IMPORT_ALL = """
import importlib, pkgutil, sys, warnings
import pyspark

LEFT_OUT = {left_out!r}

count = 0

def visit(package):
    global count
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        short = found.name.removeprefix("pyspark.")
        if short in LEFT_OUT or short.rpartition(".")[2].startswith("_"):
            continue
        try:
            module = importlib.import_module(found.name)
        except BaseException as error:
            print(found.name, type(error).__name__, error, sep=": ")
            continue
        count += 1
        if found.ispkg:
            visit(module)

warnings.simplefilter("error", FutureWarning)
visit(pyspark)
print("imported", count)
"""
"""FutureWarning is the class of PySpark's warnings of versions that it does not support."""

LEFT_OUT = {
    "daemon": "a program",
    "ml.torch.data": "needs torch",
    "shell": "a program, which starts a session",
    "worker": "a program",
    "python": "a program's folder",
    "tests": "not part of a release",
}
"""Modules that are not imported, with the reason."""


def test_every_public_module_of_pyspark_can_be_imported_without_a_warning_of_versions() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL.format(left_out=sorted(LEFT_OUT))],
        capture_output=True,
        text=True,
        check=True,
    )
    *failed, last = done.stdout.splitlines()
    assert failed == []
    word, number = last.split()
    assert (word, int(number) > 150) == ("imported", True)

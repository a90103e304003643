"""The archive of ZooKeeper's classes: its place, its name and the options for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.embedded import zookeeper_classes as classes


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """The jars of an installation that only this account writes to."""
    folder = tmp_path / "pyspark" / "jars"
    folder.mkdir(parents=True)
    made = [folder / name for name in ("zookeeper-3.9.jar", "zookeeper-jute-3.9.jar")]
    for each in made:
        each.write_text("classes")
    return made


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17"\n')
    return program


@pytest.fixture
def archive(java: Path, jars: list[Path]) -> Path:
    place = Path(classes.installation_of(jars), "orcaflow")
    place.mkdir(mode=0o755)
    file = place / classes.name_of(java, jars)
    file.write_bytes(bytes(classes.LEAST_BYTES))
    file.chmod(0o444)
    return file


def test_an_archive_is_used_once_it_is_there(java: Path, jars: list[Path], archive: Path) -> None:
    assert classes.find(java, jars) == archive
    assert classes.flags(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    archive.unlink()
    assert classes.find(java, jars) is None
    assert classes.flags(None) == ["-Xshare:auto"]


@pytest.mark.parametrize("mode", [0o446, 0o464])
def test_an_archive_that_others_may_write_is_not_used(
    java: Path, jars: list[Path], archive: Path, mode: int
) -> None:
    archive.chmod(mode)
    assert classes.find(java, jars) is None


def test_an_archive_in_a_folder_that_others_may_write_is_not_used(
    java: Path, jars: list[Path], archive: Path
) -> None:
    archive.parent.chmod(0o777)
    assert classes.find(java, jars) is None


def test_an_archive_that_was_cut_off_early_is_not_used(
    java: Path, jars: list[Path], archive: Path
) -> None:
    archive.chmod(0o644)
    archive.write_bytes(bytes(classes.LEAST_BYTES - 1))
    assert classes.find(java, jars) is None


def test_another_java_or_other_jars_need_another_archive(java: Path, jars: list[Path]) -> None:
    names = [classes.name_of(java, jars)]
    jars[0].write_text("other classes")
    names.append(classes.name_of(java, jars))
    (java.parent.parent / "release").write_text('JAVA_VERSION="21.0.1"\n')
    names.append(classes.name_of(java, jars))
    assert len(set(names)) == 3

"""Archives of Spark's classes: their validity, their trusted owners, and their requirements."""

from __future__ import annotations

import fcntl
import os
import zipfile
from pathlib import Path

import pytest

from common import caches
from worker.spark.jvm import cds_archive, cds_building
from worker.spark.jvm.cds_archive import Archive


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation, and a private cache that no other test sees."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ORCAFLOW_HOME", raising=False)
    made = tmp_path / "spark"
    (made / "jars").mkdir(parents=True)
    (made / "jars" / "a.jar").write_bytes(b"a")
    return made


@pytest.fixture
def java(tmp_path: Path) -> str:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("")
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"')
    return str(program)


def made_archive(home: Path, java: str, *, size: int = 30_000_000) -> Path:
    file = home / "orcaflow" / cds_archive.key_of(str(home), java) / "classes.jsa"
    (file.parent / "jars").mkdir(parents=True)
    (file.parent / "jars" / "z.jar").write_bytes(b"z")
    file.touch()
    os.truncate(file, size)
    return file


def test_an_archive_fits_until_a_jar_changes(home: Path, java: str) -> None:
    file = made_archive(home, java)
    found = cds_archive.find(str(home), java)
    assert found is not None
    assert found.file == file
    (home / "jars" / "a.jar").write_bytes(b"ab")
    assert cds_archive.find(str(home), java) is None


def test_an_archive_fits_until_java_changes(home: Path, java: str, tmp_path: Path) -> None:
    made_archive(home, java)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"')
    assert cds_archive.find(str(home), java) is None


def test_half_an_archive_is_none(home: Path, java: str) -> None:
    made_archive(home, java, size=1_000)
    assert cds_archive.find(str(home), java) is None


def test_an_archive_that_others_could_have_written_is_not_used(home: Path, java: str) -> None:
    file = made_archive(home, java)
    file.chmod(0o666)
    assert cds_archive.find(str(home), java) is None
    file.chmod(0o444)
    file.parent.chmod(0o777)
    assert cds_archive.find(str(home), java) is None


def test_a_link_to_an_archive_is_not_used(home: Path, java: str, tmp_path: Path) -> None:
    file = made_archive(home, java)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cds_archive.find(str(home), java) is None


def test_an_installation_that_can_not_be_written_has_its_archive_elsewhere(
    home: Path, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "orcaflow"))
    (home / "orcaflow").write_text("no folder can be made here")
    assert caches.folder(str(home)) == tmp_path / "orcaflow" / "cache" / "spark"


ENVIRONMENT = {"SPARK_CONF_DIR": "/spark/conf", "HADOOP_CONF_DIR": "/etc/hadoop"}
FOUND = Archive(file=Path("/c/classes.jsa"), first_jars=("/c/jars/janino.jar",))


def test_unsigned_jars_come_first_and_folders_of_settings_last() -> None:
    given = ("/spark/conf/", "/spark/jars/slf4j.jar", "/spark/jars/*", "/etc/hadoop")
    assert cds_archive.class_path("/spark", given, FOUND, ENVIRONMENT) == (
        "/c/jars/janino.jar",
        "/spark/jars/slf4j.jar",
        "/spark/jars/*",
        "/spark/conf/",
        "/etc/hadoop",
    )


def test_an_authors_own_classes_stay_before_sparks_without_an_archive() -> None:
    given = ("/app/mine.jar", "/spark/conf/", "/spark/jars/*")
    assert cds_archive.class_path("/spark", given, FOUND, ENVIRONMENT) is None


def test_without_an_archive_the_class_path_is_left_alone() -> None:
    assert cds_archive.class_path("/spark", ("/spark/jars/*",), None, ENVIRONMENT) is None


def test_who_comes_second_leaves_the_making_to_the_first(home: Path, java: str) -> None:
    place = caches.folder(str(home))
    assert place is not None
    with (place / f"{cds_archive.key_of(str(home), java)}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cds_building.build(str(home), java) is None


def test_an_archive_that_is_there_is_not_made_again(home: Path, java: str) -> None:
    file = made_archive(home, java)
    found = cds_building.build(str(home), java)
    assert found is not None
    assert found.file == file


def test_what_can_not_be_made_leaves_nothing_behind(home: Path, java: str) -> None:
    with zipfile.ZipFile(home / "jars" / "a.jar", "w") as jar:
        jar.writestr("A.class", "")
    with pytest.raises(Exception, match="java"):
        cds_building.build(str(home), java)  # That program is no Java.
    assert cds_archive.find(str(home), java) is None
    assert list((home / "orcaflow").glob("*/classes.jsa*")) == []


def test_a_signature_is_left_out_of_a_copy_and_nothing_else(home: Path, tmp_path: Path) -> None:
    signed = home / "jars" / "a.jar"
    with zipfile.ZipFile(signed, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Version: 1\r\n\r\nName: A.class\r\nSHA-256: x\r\n")
        jar.writestr("META-INF/KEY.SF", "")
        jar.writestr("META-INF/KEY.RSA", "")
        jar.writestr("A.class", "code")
    with zipfile.ZipFile(home / "jars" / "plain.jar", "w") as jar:
        jar.writestr("B.class", "code")
    target = tmp_path / "copies"
    target.mkdir()
    cds_building.copy_unsigned(home / "jars", target)
    assert [each.name for each in target.iterdir()] == ["a.jar"]
    with zipfile.ZipFile(target / "a.jar") as copy:
        assert copy.namelist() == ["META-INF/MANIFEST.MF", "A.class"]
        assert copy.read("META-INF/MANIFEST.MF") == b"Version: 1\n\n"
        assert copy.read("A.class") == b"code"

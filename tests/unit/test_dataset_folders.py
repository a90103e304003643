"""The check of files that tasks publish, where tasks have other accounts than the daemon."""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path

import pytest

from worker.datasets.folders import DatasetFolders
from worker.datasets.requests import DatasetRequestError

TENANT = 65_534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another account")
@pytest.mark.parametrize("name", ["link.parquet", "day/link.parquet"])
def test_x84_folders_are_the_daemons_before_a_file_in_them_is_checked(
    tmp_path: Path, name: str
) -> None:
    folders = DatasetFolders(tmp_path, cluster="0123456789ab", for_tenants=True)
    folder = folders.of("flights", 7, "0" * 16)
    link = folder.path / name
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc/hostname")
    for each in {folder.path, link.parent}:
        os.chown(each, TENANT, TENANT)
    with pytest.raises(DatasetRequestError, match="no ordinary file"):
        folders.check(folder, (name,))
    # The tenant can't replace a file after its check.
    assert {each.stat().st_uid for each in (folder.path, link.parent)} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another account")
@pytest.mark.parametrize("way", ["descriptor", "memory map"])
def test_x95_a_file_that_its_writer_can_still_change_is_not_published(
    tmp_path: Path, way: str
) -> None:
    folders = DatasetFolders(tmp_path, cluster="0123456789ab", for_tenants=True)
    folder = folders.of("flights", 7, "0" * 16)
    folder.path.mkdir(parents=True)
    file = folder.path / "x.parquet"
    file.write_bytes(b"PAR1")
    os.chown(file, TENANT, TENANT)
    writer = os.open(file, os.O_RDWR)
    mapped = mmap(writer, 4)
    if way == "memory map":
        os.close(writer)
    else:
        mapped.close()
    with pytest.raises(DatasetRequestError, match="close it before its publication"):
        folders.check(folder, ("x.parquet",))
    if way == "memory map":
        mapped.close()
    else:
        os.close(writer)
    assert folders.check(folder, ("x.parquet",)) == 4

"""The check of files that tasks publish, where tasks have other accounts than the daemon."""

from __future__ import annotations

import os
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

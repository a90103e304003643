"""The doctor's check of the volume that tasks share with the embedded PostgreSQL."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from common.config import Config, DatabaseConfig, WorkerConfig
from operations.checks import Result, volume_findings


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ("rw", Result.WARNING),
        ("rw,noquota", Result.WARNING),
        ("rw,usrquota", Result.OK),
        ("rw,usrjquota=aquota.user,jqfmt=vfsv1", Result.OK),
    ],
)
def test_a_volume_without_quotas_that_tasks_share_with_postgresql_is_named(
    tmp_path: Path, options: str, result: Result
) -> None:
    number = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    device = f"{os.major(number)}:{os.minor(number)}"
    mounts.write_text(
        f"21 1 0:99 / /other rw - ext4 /dev/other rw,usrquota\n"
        f"22 1 {device} / /srv rw shared:1 - ext4 /dev/srv {options}\n"
    )
    config = Config(home=tmp_path / "home", worker=WorkerConfig(tenant_mode="tenant"))
    (found,) = volume_findings(config, mounts=mounts)
    assert found.result is result
    elsewhere = DatabaseConfig(url="postgresql+psycopg2://user@host/name")
    assert not list(volume_findings(replace(config, database=elsewhere), mounts=mounts))
    assert not list(volume_findings(replace(config, worker=WorkerConfig()), mounts=mounts))

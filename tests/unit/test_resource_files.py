"""Limits of the resource files of users: their number, their size, and the free space."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.config import ApiConfig
from common.errors import NotAllowedError
from operations.errors import UsageError
from operations.python_gateway.resource_files import (
    ResourceLimits,
    Usage,
    limits_of,
    usage_of,
    write_resource,
)

OWN = "users/4-abc"
LIMITS = ResourceLimits(files=4, size_mb=1, reserved_gb=0.5)
HALF_MB = "x" * (512 * 1024)


def volume(*, free_gb: float = 10.0, files: int = 10_000) -> os.statvfs_result:
    blocks = int(free_gb * 1024**3 / 4096)
    return os.statvfs_result((4096, 4096, 10**9, blocks, blocks, 10**6, files, files, 0, 255))


def write(
    resources: Path, name: str, content: str, *, free_gb: float = 10.0, own: str = OWN
) -> None:
    write_resource(
        resources, f"{own}/{name}", content, limits=LIMITS, look=lambda _: volume(free_gb=free_gb)
    )


def test_x116_a_user_has_a_limited_number_of_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path, "a", "1")
    write(tmp_path, "lib/b", "1")
    with pytest.raises(NotAllowedError, match=r"3 .* and api\.user_resource_files allows 4: over"):
        write(tmp_path, "deep/c", "1")
    assert not (tmp_path / OWN / "deep").exists()
    write(tmp_path, "lib/c", "1")
    with pytest.raises(NotAllowedError, match="ask an administrator to remove some"):
        write(tmp_path, "d", "")
    # Existing files can be changed, and other users have limits of their own.
    write(tmp_path, "lib/c", "12")
    write(tmp_path, "a", "1", own="users/5-def")
    assert usage_of(tmp_path / OWN) == Usage(files=4, size=4)


def test_x116_the_files_of_a_user_have_a_limited_size(tmp_path: Path) -> None:
    write(tmp_path, "a", HALF_MB)
    write(tmp_path, "b", HALF_MB)
    for name in ("c", "a"):
        with pytest.raises(NotAllowedError, match=r"1\.0 MB, .* than api\.user_resource_mb allows"):
            write(tmp_path, name, HALF_MB + "x")
    # A shorter file makes room.
    write(tmp_path, "a", "")
    write(tmp_path, "c", HALF_MB)
    assert usage_of(tmp_path / OWN) == Usage(files=3, size=1024**2)


def test_x116_no_file_is_written_into_the_reserve_of_the_volume(tmp_path: Path) -> None:
    write(tmp_path, "a", "123")
    for free_gb in (0.4, 0.5):
        with pytest.raises(NotAllowedError, match=r"GiB free, less than api\.reserved_disk_gb"):
            write(tmp_path, "b", "1", free_gb=free_gb)
    write(tmp_path, "a", "12", free_gb=0)
    assert (tmp_path / OWN / "a").read_text(encoding="utf-8") == "12"


def test_x116_calls_at_the_same_time_do_not_pass_a_limit_together(tmp_path: Path) -> None:
    def is_written(number: int) -> bool:
        try:
            write(tmp_path, f"file-{number}", "1")
        except NotAllowedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        written = list(threads.map(is_written, range(24)))
    assert sum(written) == usage_of(tmp_path / OWN).files == LIMITS.files


def test_a_link_is_neither_followed_nor_counted_by_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_text(HALF_MB)
    write(tmp_path, "a", "1")
    (tmp_path / OWN / "link").symlink_to(outside)
    with pytest.raises(UsageError, match="can't be written"):
        write(tmp_path, "link/large", "1")
    assert usage_of(tmp_path / OWN).files == 2
    assert usage_of(tmp_path / OWN).size < 1000
    assert (outside / "large").stat().st_size == len(HALF_MB)


def test_the_limits_are_settings() -> None:
    settings = ApiConfig(user_resource_files=7, user_resource_mb=8, reserved_disk_gb=9)
    assert limits_of(settings) == ResourceLimits(files=7, size_mb=8, reserved_gb=9)

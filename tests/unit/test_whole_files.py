from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from common.config.zone import record_zone, recorded_zone
from common.whole_files import write_whole


def test_daemons_that_start_together_record_the_zone(tmp_path: Path) -> None:
    zones = [ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Lima")]

    def start(number: int) -> None:
        record_zone(tmp_path, zones[number % 2])

    with ThreadPoolExecutor(8) as daemons:
        list(daemons.map(start, range(400)))
    assert recorded_zone(tmp_path) in {zone.key for zone in zones}
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["time-zone"]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_has_the_new_content_and_the_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    write_whole(file, "after", mode=mode)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", mode)


def test_a_failed_write_leaves_the_former_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\udcff")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "before")]

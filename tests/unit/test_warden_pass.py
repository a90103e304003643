"""A warden's pass while PostgreSQL is away: it ends with the last process, and waits for no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import config
from worker import warden_pass


@pytest.mark.parametrize("left", [True, False])
def test_a_warden_of_a_stopped_cluster_stays_only_while_something_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    monkeypatch.setattr(warden_pass, "_left", lambda _home, _port: left)
    # The embedded server was stopped, so there is no address to be tried.
    stopped = config.load(overrides={"home": str(tmp_path)})
    found = warden_pass.one_pass(stopped, host="127.0.0.1", port=1234, daemon=2**22)
    assert found == (warden_pass.AGAIN if left else warden_pass.DONE)

"""The broker of the example of streams, in the tests' own process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_FILE = Path(__file__).resolve().parents[1] / "examples" / "streams" / "broker.py"


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("mock_kafka_broker", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = _loaded()
Broker = _module.Broker
a_broker = _module.a_broker

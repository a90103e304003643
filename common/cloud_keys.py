"""The networks at which clouds give keys away, which no task may reach by default.

Separate from `common.destinations`, because every process reads the settings and few check an
address.
"""

from __future__ import annotations

from typing import Final

CLOUD_KEYS: Final = (
    *("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::254"),
    *("100.100.100.200", "168.63.129.16"),
)
"""Networks at which clouds give keys away; the default of `worker.http_denied`."""

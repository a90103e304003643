"""The text of a log as a page shows it, cut where nothing is torn apart.

Pure. Of the escapes colours alone are left; whatever else would steer a terminal is taken out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_LONGEST_ESCAPE: Final = 1000
COLOUR: Final = re.compile("\x1b\\[[0-9;:]{0,64}m")
"""An escape that `viewable` leaves."""
_ESCAPE: Final = re.compile(
    "\x1b(?:"
    "\\[[0-?]*[ -/]*[@-~]"  # CSI
    "|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # OSC, as links and titles are, DCS and their like
    "|[ -/]*[0-Z\\\\^-~]"
    ")?"
)
_UNFINISHED: Final = re.compile(
    b"\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\\Z|\r\\Z"
)
_STEERING: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")


def viewable(body: bytes, *, is_end: bool) -> tuple[str, int]:
    """Return the text of some bytes, and of how many of them: what is torn waits for its rest.

    At the end of a log nothing is waited for.
    """
    taken = len(body) if is_end else _whole(body)
    text = body[:taken].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return _STEERING.sub("", _ESCAPE.sub(_kept, text)), taken


def log_event(kind: str, document: Mapping[str, Any], *, at: int) -> bytes:
    """Write an event, whose id is the offset at which the log goes on."""
    text = json.dumps(document, separators=(",", ":"))
    return f"event: {kind}\nid: {at}\ndata: {text}\n\n".encode()


def _kept(escape: re.Match[str]) -> str:
    return escape.group() if COLOUR.fullmatch(escape.group()) else ""


def _whole(body: bytes) -> int:
    """Count the bytes before an escape, a line end or a character that goes on behind them."""
    torn = _UNFINISHED.search(body, max(0, len(body) - _LONGEST_ESCAPE))
    if torn is not None:
        return torn.start()
    for back in range(1, min(4, len(body) + 1)):
        byte = body[-back]
        if byte & 0xC0 != 0x80:  # Not in the midst of a character.
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(body) - back if length > back else len(body)
    return len(body)

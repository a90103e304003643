"""The files that match a pattern and that an attempt's account may see.

The daemon may list folders that the account may not. A pattern would reveal the names in them to
the account, so folders are entered and listed only with the rights of the account.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import Final

from worker.workspace import Account, may_enter, may_list, may_read_file

_WILDCARD: Final = re.compile(r"[*?\[]")


def matching_files(pattern: Path, account: Account | None, *, limit: int) -> list[Path]:
    """Return the ordinary files that an absolute pattern matches and that the account may read.

    They are sorted; `limit` is the maximum number.
    """
    first, *parts = pattern.parts
    found: Iterable[Path] = [Path(first)]
    for part in parts:
        found = _below(found, part, account)
    return sorted(islice((each for each in found if may_read_file(account, each)), limit))


def _below(folders: Iterable[Path], part: str, account: Account | None) -> Iterator[Path]:
    is_pattern = _WILDCARD.search(part) is not None
    matches = re.compile(translate(part.replace("[^", "[!"))).match
    for folder in folders:
        try:
            about = folder.stat()
            if not is_pattern:
                if may_enter(account, about):
                    yield folder / part
            elif may_list(account, about):
                yield from sorted(each for each in folder.iterdir() if matches(each.name))
        except OSError:
            continue  # Not a readable folder, so it has no matches.

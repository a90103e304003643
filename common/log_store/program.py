"""The process that reads and writes a store of logs, for a parent that speaks to it over pipes.

`python -m common.log_store.program`. Each request is a line of JSON on standard input, each answer
one on standard output, and behind it as many bytes as its `body` says. The first request names the
store, whose URL may hold credentials: these are in no command line. It ends with its parent, and
when it has had nothing to do for a while.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyarrow import ArrowException
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from common.log_files import open_by_ids
from common.log_store.layout import BLOCK_BYTES, Block, block_of, read_name, readable
from common.masking import mask_text

_AT_ONCE: Final = 8
_IDLE_SECONDS: Final = 300
_TRIES: Final = 3
_MOST_READ_BYTES: Final = 1024 * 1024
_MOST_KNOWN: Final = 2_000
_WITH_FOLDERS: Final = ("local", "hdfs")
"""Stores with folders that must be made, and in which a file is seen while it is written."""
_PUTS_OUT: Final = b"{setValue("
_FAILURES: Final = (OSError, ValueError, KeyError, TypeError, ArrowException)
"""The errors of stores and of requests that make no sense: told to the parent, never its end."""


class Store:
    """The logs of one cluster in a store."""

    def __init__(self, url: str, *, cluster: str) -> None:
        """`OSError`, `ValueError` or an `ArrowException` if there can't be such a store."""
        self._files, path = FileSystem.from_uri(url)
        self._root = f"{path.rstrip('/')}/{cluster}"
        self._has_folders = self._files.type_name in _WITH_FOLDERS
        self._known: dict[tuple[int, int], list[Block]] = {}

    def keep(self, logs: Path, asked: Mapping[str, Any]) -> dict[str, object]:
        """Keep the beginning of a log up to `upto`, or all of one that has ended."""
        ids = int(asked["instance"]), int(asked["task"])
        try:
            log = open_by_ids(logs, *ids)
        except OSError:
            return {"task": ids[1], "missing": True}
        try:
            upto = None if asked["ended"] else int(asked["upto"])
            known = [] if asked["fresh"] else self._blocks(ids)
            if upto is not None and asked["holds"]:
                upto = _held(log, max((each.end for each in known), default=0), upto)
            kept = self._keep(ids, log, known, upto)
        finally:
            os.close(log)
        if upto is None:
            self._known.pop(ids, None)
        return {"task": ids[1], "kept": kept}

    def _keep(self, ids: tuple[int, int], log: int, known: list[Block], upto: int | None) -> int:
        """Write what is missing, block by block; `known` is what is there, and kept up to date."""
        end = os.fstat(log).st_size if upto is None else upto
        if upto is not None and upto <= 0:
            return 0
        start = 0
        while True:
            length = min(BLOCK_BYTES, end - start)
            is_last = upto is None and start + length >= end
            there = [each for each in known if each.start == start]
            if upto is not None and any(each.length >= length for each in there):
                # Compared with the file once only, at the end of the attempt.
                start += length
            else:
                body = os.pread(log, length, start) if length else b""
                if upto is not None and len(body) < length:
                    return start
                self._write(ids, body, block_of(body, start=start, is_last=is_last), known)
                start += length
            if start >= end:
                break
        if upto is None:
            self._remove(ids, [each for each in known if each.start >= max(1, end)], known)
        return end

    def _write(self, ids: tuple[int, int], body: bytes, block: Block, known: list[Block]) -> None:
        if block not in known:
            path = f"{self._folder(ids)}/{block.name}"
            if self._has_folders:
                self._files.create_dir(self._folder(ids), recursive=True)
            new = f"{self._folder(ids)}/.{os.getpid()}-{block.name}" if self._has_folders else path
            with self._files.open_output_stream(new) as stream:
                stream.write(body)
            if new != path:
                self._files.move(new, path)
            known.append(block)
        stale = [each for each in known if each.start == block.start and each != block]
        self._remove(ids, stale, known)

    def _remove(self, ids: tuple[int, int], stale: Iterable[Block], known: list[Block]) -> None:
        for each in list(stale):
            with suppress(FileNotFoundError):
                self._files.delete_file(f"{self._folder(ids)}/{each.name}")
            known.remove(each)

    def read(self, asked: Mapping[str, Any]) -> tuple[dict[str, object], bytes]:
        """Return the size of a log, whether it has ended, and some bytes; `missing` without one."""
        ids = int(asked["instance"]), int(asked["task"])
        start, most = int(asked["from"]), min(int(asked["max"]), _MOST_READ_BYTES)
        for _ in range(_TRIES):
            chain = readable(self._blocks(ids))
            if chain and (chain[-1].is_last or start < chain[-1].end):
                with suppress(FileNotFoundError):
                    return _about(chain), self._piece(ids, chain, start, most)
            # There may be more by now, or others in their place.
            self._known.pop(ids, None)
            chain = readable(self._blocks(ids))
            if not chain:
                return {"missing": True}, b""
            if start >= chain[-1].end:
                break
        return _about(chain), b""

    def _piece(self, ids: tuple[int, int], chain: Sequence[Block], start: int, most: int) -> bytes:
        for each in chain:
            if most > 0 and each.start <= start < each.end:
                with self._files.open_input_file(f"{self._folder(ids)}/{each.name}") as file:
                    file.seek(start - each.start)
                    return bytes(file.read(min(most, each.end - start)))
        return b""

    def drop(self, instance: int) -> None:
        """Remove the logs of a process instance."""
        with suppress(FileNotFoundError):
            self._files.delete_dir(f"{self._root}/{instance}")
        self._known = {ids: each for ids, each in self._known.items() if ids[0] != instance}

    def _blocks(self, ids: tuple[int, int]) -> list[Block]:
        if ids not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known = {}
            found: Sequence[FileInfo] = self._files.get_file_info(
                FileSelector(self._folder(ids), allow_not_found=True)
            )
            blocks = [read_name(each.base_name) for each in found if each.type == FileType.File]
            self._known[ids] = [each for each in blocks if each is not None]
        return self._known[ids]

    def _folder(self, ids: tuple[int, int]) -> str:
        return f"{self._root}/{ids[0]}/{ids[1]}"


def _about(chain: Sequence[Block]) -> dict[str, object]:
    return {"size": chain[-1].end, "ended": chain[-1].is_last}


def _held(log: int, start: int, upto: int) -> int:
    """Return the end of what is sure not to be masked later, as values are that a task puts out."""
    position = max(0, start - len(_PUTS_OUT))
    before = b""
    while position < upto:
        body = os.pread(log, min(BLOCK_BYTES, upto - position), position)
        if not body:
            break
        found = (before + body).find(_PUTS_OUT)
        if found >= 0:
            return position - len(before) + found
        before, position = body[-len(_PUTS_OUT) :], position + len(body)
    return upto


def main() -> int:
    """Answer until there are no more requests."""
    store: Store | None = None
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        while select.select([sys.stdin], [], [], _IDLE_SECONDS)[0]:
            line = sys.stdin.buffer.readline()
            if not line:
                break
            asked: dict[str, Any] = json.loads(line)
            body = b""
            try:
                if store is None:
                    store = Store(asked["url"], cluster=asked["cluster"])
                    answer: dict[str, object] = {}
                else:
                    answer, body = _answer(store, asked, threads)
            except _FAILURES as error:
                answer = {"error": _without_secrets(error)}
            sys.stdout.buffer.write(json.dumps({**answer, "body": len(body)}).encode() + b"\n")
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
    return 0


def _answer(
    store: Store, asked: Mapping[str, Any], threads: ThreadPoolExecutor
) -> tuple[dict[str, object], bytes]:
    match asked["do"]:
        case "keep":
            logs = Path(asked["logs"])

            def keep(item: Mapping[str, Any]) -> dict[str, object]:
                try:
                    return store.keep(logs, item)
                except _FAILURES as error:
                    return {"task": item["task"], "error": _without_secrets(error)}

            return {"items": list(threads.map(keep, asked["items"]))}, b""
        case "read":
            return store.read(asked)
        case "drop":
            store.drop(int(asked["instance"]))
            return {}, b""
    raise ValueError("there is no such request")


def _without_secrets(error: BaseException) -> str:
    return mask_text(f"{type(error).__name__}: {error}")[:500]


if __name__ == "__main__":
    sys.exit(main())

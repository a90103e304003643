"""The texts of the console in other languages than English, whose texts are the keys of all.

`texts/zh_CN.po` is read when the first page is asked for in Chinese. A compiled catalogue would
be a binary file, which no merge can join and which has to be made anew after each, or a step of the
build, which a checkout does not have. So the text itself is read here, and put into the form that
the standard library's `gettext` looks things up in; Babel is needed to change it, and not to run.
"""

from __future__ import annotations

import ast
import gettext
import io
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final[Mapping[str, str]] = {ENGLISH: "English", "zh-CN": "简体中文"}
"""The languages of pages: the tag of each, and its name in itself."""
_FOLDER: Final = Path(__file__).parent / "texts"
_MAGIC: Final = 0x950412DE
_HEADER_BYTES: Final = 28
_CONTEXT: Final = "\x04"
"""Stands between a context and its text, and a NUL between the forms of a plural, as in a .mo."""


@cache
def translations(language: str) -> gettext.NullTranslations:
    """Return the texts of a language of `LANGUAGES`."""
    if language == ENGLISH:
        return gettext.NullTranslations()
    text = (_FOLDER / f"{language.replace('-', '_')}.po").read_text(encoding="utf-8")
    return gettext.GNUTranslations(io.BytesIO(compiled(read_po(text))))


def read_po(text: str) -> dict[str, str]:
    """Read a catalogue; entries that are fuzzy, obsolete or empty are left out.

    The header has the key "". `ValueError` names the line that is no part of an entry.
    """
    found: dict[str, str] = {}
    for block in text.split("\n\n"):
        fields = _fields(block.splitlines())
        if "msgid" not in fields:
            continue
        key = fields["msgid"]
        if "msgctxt" in fields:
            key = f"{fields['msgctxt']}{_CONTEXT}{key}"
        forms = [fields[each] for each in sorted(fields) if each.startswith("msgstr")]
        if "msgid_plural" in fields:
            key = f"{key}\0{fields['msgid_plural']}"
        if all(forms):
            found[key] = "\0".join(forms)
    return found


def compiled(texts: Mapping[str, str]) -> bytes:
    """Return the .mo of texts: two tables of lengths and places, sorted by the keys, and texts."""
    pairs = sorted((key.encode(), text.encode()) for key, text in texts.items())
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    count = len(pairs)
    place = _HEADER_BYTES + 16 * count
    table = []
    for each in (*keys, *values):
        table += [len(each), place]
        place += len(each) + 1
    tables = (_HEADER_BYTES, _HEADER_BYTES + 8 * count)
    header = struct.pack("<7I", _MAGIC, 0, count, *tables, 0, 0)
    places = struct.pack(f"<{len(table)}I", *table)
    return header + places + b"".join(each + b"\0" for each in (*keys, *values))


def _fields(lines: Iterable[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        if line.startswith("#,") and "fuzzy" in line:
            return {}
        if line.startswith("#") or not line:
            continue
        name, quote, rest = line.partition('"')
        last = name.strip() or last
        if not quote or not last:
            raise ValueError(f"no line of a catalogue: {line!r:.80}")
        # The escapes of C that catalogues have are Python's too.
        fields[last] = fields.get(last, "") + str(ast.literal_eval(f'"{rest}'))
    return fields

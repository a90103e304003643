"""Encrypts secrets that rows hold in clear text, from older versions or written by hand.

Rows are processed in batches, and a row is updated only if it has not changed since it was read. So
this may run while daemons run, and may be interrupted and repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from common.parameter_keys import ParameterKeys, Whole
from common.sealed_tokens import TOKEN
from common.store.connect import Engine, engine, retrying
from common.store.people import sealed_columns as store
from operations.rights import noted
from operations.secret_keys import secret_keys
from operations.session import Session

_BATCH = 200
_PATIENCE = timedelta(hours=1)
"""The timeout of a statement: a batch may read all of a large table before it finds a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedColumn:
    """A column with the number of texts changed, and of texts that this host lacks the key for."""

    name: str
    changed: int
    unreadable: int


def encrypt_secrets(session: Session) -> list[EncryptedColumn]:
    """Encrypt the secrets of all rows by the first key.

    Returns the columns with changed or unreadable texts. From now on, every process that uses the
    same key file also encrypts the secrets that it writes.
    """
    with noted(session, "secrets.encrypt", None) as db:
        file = secret_keys(session, db)
        file.begin_parameters()
        keys = ParameterKeys(file)
    # The session's engine would decrypt the texts.
    raw = engine(session.url, pool_size=1, statement_timeout=_PATIENCE)
    try:
        done = [_encrypted(raw, each, keys) for each in store.sealed_columns()]
    finally:
        raw.dispose()
    return [each for each in done if each.changed or each.unreadable]


def _encrypted(raw: Engine, where: store.SealedColumn, keys: ParameterKeys) -> EncryptedColumn:
    changed = unreadable = 0
    for batch in _batches(raw, where):
        texts = [(each, _resealed(each.text, keys, is_whole=where.is_whole)) for each in batch]
        unreadable += sum(keys.trouble(keys.opened(text)) is not None for _, text in texts)
        different = [(each, text) for each, text in texts if each.text != text]
        # Masters lock the same rows in another order; after a deadlock the batch is repeated.
        changed += retrying(partial(_replaced, raw, where, different))
    return EncryptedColumn(name=where.name, changed=changed, unreadable=unreadable)


def _replaced(
    raw: Engine, where: store.SealedColumn, texts: list[tuple[store.StoredText, str]]
) -> int:
    with raw.begin() as db:
        return store.replace_texts(db, where, texts)


def _batches(raw: Engine, where: store.SealedColumn) -> Iterator[list[store.StoredText]]:
    after = None
    while True:
        with raw.connect() as db:
            batch = store.stored_texts(db, where, after=after, limit=_BATCH)
        if not batch:
            return
        yield batch
        after = batch[-1].key


def _resealed(text: str, keys: ParameterKeys, *, is_whole: bool) -> str:
    opened = keys.opened(text)
    if is_whole and not TOKEN.fullmatch(opened):
        return keys.sealed(Whole(opened))
    return keys.sealed(opened)

"""The limits of texts and numbers that people give to pools and others; imports no store."""

from __future__ import annotations

from typing import Final

from operations.errors import UsageError

MAX_POOL_SIZE: Final = 1_000_000
MAX_POOL_NAME_LENGTH: Final = 200
MAX_POOL_DESCRIPTION_LENGTH: Final = 255
MAX_DATASOURCE_NAME_LENGTH: Final = 64
MAX_PASSWORD_LENGTH: Final = 10_000


def check_pool_size(size: int) -> None:
    """Raise `UsageError` for a number of slots that no pool can have."""
    if not 1 <= size <= MAX_POOL_SIZE:
        raise UsageError("size", f"a pool has from 1 to {MAX_POOL_SIZE} slots, not {size}")


def check_name(name: str, *, longest: int) -> None:
    """Raise `UsageError` for a name that can't be read, typed or stored as it is."""
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise UsageError(
            "name", "a name is printable text that neither begins nor ends with white space"
        )
    if len(name) > longest:
        raise UsageError("name", f"has {len(name)} characters; at most {longest} are allowed")


def check_description(text: str | None, *, longest: int) -> None:
    """Raise `UsageError` for a description that can't be stored as it is."""
    if text is not None and (len(text) > longest or "\0" in text):
        raise UsageError("description", f"has more than {longest} characters, or a NUL")


def check_password(password: str, field: str) -> None:
    """Raise `UsageError` for a password that no connection can be given."""
    if not password or len(password) > MAX_PASSWORD_LENGTH or "\0" in password:
        raise UsageError(field, "the password is empty, too long or has a NUL")

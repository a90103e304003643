"""Passwords: the rules for new ones, and their hashes (argon2id). The one door to argon2.

The parameters stand in the hash, so that they can be raised later. 64 MiB a hash: callers see to it
that few are made at once.
"""

from __future__ import annotations

from typing import Final

from operations.errors import UsageError

SHORTEST: Final = 12
LONGEST: Final = 1024
_FEW_SIGNS: Final = 4
_ROWS: Final = (
    "0123456789012345678901234567890",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiopasdfghjklzxcvbnm",
    "qwertzuiopasdfghjklyxcvbnm",
)


def check_new(password: str, *, user_name: str) -> None:
    """Refuse a password that is short, long, the user's name, or a pattern."""
    if len(password) < SHORTEST:
        raise UsageError("password", f"has fewer than {SHORTEST} characters")
    if len(password) > LONGEST:
        raise UsageError("password", f"has more than {LONGEST} characters")
    small = password.lower()
    if user_name.lower() in small and len(small) - len(user_name) < SHORTEST // 2:
        raise UsageError("password", "is the name with little else")
    if len(set(small)) <= _FEW_SIGNS:
        raise UsageError("password", "repeats a few characters")
    if any(small in row or small[::-1] in row for row in _ROWS):
        raise UsageError("password", "is a row of the keyboard or of the alphabet")


def hashed(password: str) -> str:
    """Return the argon2id hash of a password."""
    from argon2 import PasswordHasher

    made: str = PasswordHasher().hash(password)
    return made


def is_outdated(stored: str) -> bool:
    """Return True for a hash that was made with other parameters than a new one."""
    from argon2 import PasswordHasher

    return bool(PasswordHasher().check_needs_rehash(stored))


def matches(stored: str, password: str) -> bool:
    """Return True if this is the password of the hash; False for what is no hash of argon2."""
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return bool(PasswordHasher().verify(stored, password))
    except (VerificationError, InvalidHashError):
        return False

"""The memory factor: the multiplier of the memory that an attempt is given. Pure."""

from typing import Final

MAX_MEMORY_FACTOR: Final = 1024.0

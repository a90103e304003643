"""Marks the texts of Python that the console's catalogue translates where a page shows them.

Pure. A value that lives longer than a request, as the look of a state does, keeps its English text,
by which the catalogue finds the translation. `pybabel extract` reads the marks.
"""

from __future__ import annotations


def marked(text: str) -> str:
    """Return the text as it is."""
    return text

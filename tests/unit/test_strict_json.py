"""Limits of JSON from users are checked before it is parsed."""

from __future__ import annotations

import pytest

from common.errors import InvalidDefinitionError
from common.strict_json import MAX_CONTAINERS, MAX_DEPTH, strict_json


@pytest.mark.parametrize("part", [b"{}", b"[]", b'{"a":[]}', b'[{"a":"b"}]'])
def test_a_document_of_too_many_parts_is_refused_before_it_is_parsed_x66(part: bytes) -> None:
    # The closing bracket is missing, so a parser would report another mistake.
    with pytest.raises(InvalidDefinitionError, match="more than 500,000 objects and lists"):
        strict_json(b"[" + b",".join([part] * MAX_CONTAINERS))


def test_brackets_in_texts_are_no_parts() -> None:
    assert strict_json(b'["' + b"[{" * MAX_CONTAINERS + b'"]') == ["[{" * MAX_CONTAINERS]
    assert strict_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)

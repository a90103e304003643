"""The allow list of consumer properties, for any name and any value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kafka_topic import StreamAwayError, Topic
from common.model.streams.consumer import (
    ClientProperties,
    librdkafka_properties,
    read_properties,
)
from common.model.streams.properties import FROM_AUTHORS, JAAS, JAVA_NAMES, NO_EFFECT
from tests.reference.java_consumer import HOSTILE, JAVA

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
LISTED = sorted({*FROM_AUTHORS, *JAVA_NAMES, JAAS, *NO_EFFECT})
NAMES = st.one_of(
    st.text(max_size=60),
    st.sampled_from([*HOSTILE, *JAVA, *LISTED]),
    st.from_regex(
        r"(ssl|sasl|log|plugin|http)\.[a-z.]{1,20}(location|file|url|paths)", fullmatch=True
    ),
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.integers().map(str),
    st.booleans().map(str),
    st.sampled_from(["", "-1", "0", "a:1", "[::1]:5", "/etc/shadow", "https", "SASL_SSL"]),
    st.sampled_from([*HOSTILE.values(), *JAVA.values()]),
)


@given(NAMES, VALUES)
def test_whatever_is_not_listed_is_refused_x31(name: str, value: str) -> None:
    read = read_properties({**SERVERS, name: value})
    reached = librdkafka_properties(read.found, {}).given if not read.mistakes else {}
    assert reached.keys() <= FROM_AUTHORS.keys()
    if name not in LISTED:
        assert [place for place, _ in read.mistakes] != []
        with pytest.raises(StreamAwayError):
            Topic("events", ClientProperties(given={**SERVERS, name: value}))
    for place, problem in read.mistakes:
        assert f"{place}{problem}".isprintable()


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(LISTED), VALUES, max_size=5))
def test_what_is_accepted_at_submission_makes_a_client(properties: dict[str, str]) -> None:
    read = read_properties({**SERVERS, **properties})
    if not read.mistakes:
        Topic("events", librdkafka_properties(read.found, {}), has_log=False).close()

"""Properties of parameters for every text, every value and every moment."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.params import (
    ParameterError,
    Property,
    effective_parameters,
    parse_properties,
    properties_json,
    resolve_global_params,
    substitute,
    system_parameters,
)

# A busy machine is no failure of the code.
UNTIMED = settings(deadline=None)

ZONES = st.sampled_from(
    [
        ZoneInfo(name)
        for name in (
            "UTC",
            "America/New_York",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "America/Sao_Paulo",
            "Asia/Kathmandu",
        )
    ]
)
MOMENTS = st.integers(-2_000_000_000, 7_000_000_000).map(
    lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
NOON = datetime(2020, 3, 10, 12, tzinfo=UTC)
NAMES = st.sampled_from(["a", "b", "c", "ab", "system.datetime", "${a}", ""])
_SYMBOLS = [
    *"${}[]'-+/*(),.1abc\n日",
    *("${", "$[", "${a}", "${b}", "${c}", "$[yyyy-1]", "yyyy", "MM", "dd", "24", "999999999"),
    *("timestamp(", "add_months(", "month_begin(", "week_end(", "week_first_day(", "year_week("),
]
# Mostly symbols with a meaning, so that most examples are nearly valid.
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(_SYMBOLS),
        max_size=25,
    ).map("".join),
)
PARAMETERS = st.dictionaries(NAMES, TEXTS, max_size=5)


@UNTIMED
@given(TEXTS, PARAMETERS, MOMENTS, ZONES)
def test_arbitrary_text_raises_nothing_but_a_parameter_error(
    text: str, parameters: dict[str, str], moment: datetime, zone: ZoneInfo
) -> None:
    with suppress(ParameterError):
        assert isinstance(substitute(text, parameters, moment=moment, zone=zone), str)


@UNTIMED
@given(PARAMETERS, PARAMETERS, MOMENTS, ZONES)
def test_arbitrary_values_raise_nothing_but_a_parameter_error(
    global_values: dict[str, str],
    local_values: dict[str, str],
    moment: datetime,
    zone: ZoneInfo,
) -> None:
    with suppress(ParameterError):
        resolved = resolve_global_params(
            (Property(prop=prop, value=value) for prop, value in global_values.items()),
            moment=moment,
            zone=zone,
        )
        system = system_parameters(moment=moment, zone=zone)
        found = effective_parameters(
            resolved,
            (Property(prop=prop, value=value) for prop, value in local_values.items()),
            system=system,
            moment=moment,
            zone=zone,
        )
        assert found.keys() == system.keys() | global_values.keys() | local_values.keys()


@UNTIMED
@given(PARAMETERS, PARAMETERS, PARAMETERS, PARAMETERS)
def test_every_name_has_the_value_of_its_strongest_layer(
    global_values: dict[str, str],
    pool: dict[str, str],
    local_values: dict[str, str],
    start_params: dict[str, str],
) -> None:
    with suppress(ParameterError):
        found = effective_parameters(
            (Property(prop=prop, value=value) for prop, value in global_values.items()),
            (Property(prop=prop, value=value) for prop, value in local_values.items()),
            system={"system.datetime": "20200310120000"},
            moment=NOON,
            zone=ZoneInfo("UTC"),
            pool=[Property(prop=prop, value=value) for prop, value in pool.items()],
            start_params=start_params,
        )
        layers = (global_values, pool, local_values, start_params)
        assert set(found) == {"system.datetime"}.union(*layers)
        for prop, value in pool.items():
            if prop not in start_params and not local_values.get(prop):
                assert found[prop] == value


@UNTIMED
@given(st.text().map(lambda text: text.replace("$", "")), PARAMETERS)
def test_a_text_without_a_dollar_is_unchanged(text: str, parameters: dict[str, str]) -> None:
    assert substitute(text, parameters, moment=NOON, zone=ZoneInfo("UTC")) == text


@UNTIMED
@given(TEXTS, st.dictionaries(NAMES, st.text("ab1 -"), max_size=5), ZONES)
def test_substituting_again_changes_nothing_once_no_placeholder_is_left(
    text: str, parameters: dict[str, str], zone: ZoneInfo
) -> None:
    once = substitute(text, parameters, moment=NOON, zone=zone)
    if "${" not in once and "$[" not in once:
        assert substitute(once, parameters, moment=NOON, zone=zone) == once


@UNTIMED
@given(MOMENTS, ZONES, st.integers(-4000, 4000))
@example(datetime(2019, 11, 4, 4, 30, tzinfo=UTC), ZoneInfo("America/New_York"), -1)
@example(datetime(2019, 3, 9, 7, 30, tzinfo=UTC), ZoneInfo("America/New_York"), 1)
@example(datetime(2019, 4, 6, 15, 15, tzinfo=UTC), ZoneInfo("Australia/Lord_Howe"), -1)
@example(datetime(2011, 12, 29, 22, 0, tzinfo=UTC), ZoneInfo("Pacific/Apia"), 1)
@example(datetime(2018, 11, 3, 3, 30, tzinfo=UTC), ZoneInfo("America/Sao_Paulo"), 1)
def test_counting_days_is_counting_dates(moment: datetime, zone: ZoneInfo, days: int) -> None:
    expected = moment.astimezone(zone).date() + timedelta(days=days)
    text = substitute(f"$[yyyy-MM-dd{days:+}]", {}, moment=moment, zone=zone)
    assert text == expected.isoformat()


@UNTIMED
@given(MOMENTS, ZONES, st.integers(-100_000, 100_000).filter(lambda minutes: minutes % 1440))
def test_counting_less_than_days_is_counting_elapsed_minutes(
    moment: datetime, zone: ZoneInfo, minutes: int
) -> None:
    form = f"timestamp(yyyyMMddHHmmss{minutes:+}/24/60)"
    text = substitute(f"$[{form}]", {}, moment=moment, zone=zone)
    exact = (moment + timedelta(minutes=minutes)).replace(microsecond=0)
    assert int(text) == exact.timestamp()


@UNTIMED
@given(MOMENTS, ZONES)
def test_iso_weeks_are_those_of_the_calendar(moment: datetime, zone: ZoneInfo) -> None:
    year, week, weekday = moment.astimezone(zone).isocalendar()
    text = substitute("$[YYYY w e] $[year_week(yyyy-MM)]", {}, moment=moment, zone=zone)
    assert text == f"{year} {week} {weekday} {year}-{week:02}"


@UNTIMED
@given(st.lists(st.builds(Property, prop=st.text(min_size=1), value=st.text())))
def test_properties_are_read_back_as_they_were_stored(declared: list[Property]) -> None:
    assert list(parse_properties(properties_json(declared))) == declared


@UNTIMED
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["prop", "direct", "type", "value"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    )
)
def test_arbitrary_json_is_properties_or_a_parameter_error(document: object) -> None:
    with suppress(ParameterError):
        for each in parse_properties(document):
            assert isinstance(each.prop, str)
            assert isinstance(each.value, str)

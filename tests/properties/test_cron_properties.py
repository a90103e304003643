"""Properties of every cron line, zone and policy: one order of fires, and the reference's.

Lines are drawn from Quartz's grammar as text, so that a line and its reading differ.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from common.cron import (
    MAX_LENGTH,
    Cron,
    CronError,
    MissingTime,
    RepeatedTime,
    Timetable,
    merged,
)
from tests.reference.quartz import Quartz, WallClock

# A busy machine is no failure of the code.
UNTIMED = settings(deadline=None, max_examples=80)

_TICK = timedelta(microseconds=1)
_MONTHS = ("JAN", "feb", "Mar", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEK = ("SUN", "mon", "Tue", "WED", "THU", "FRI", "SAT")
# Zones with the most unusual clock changes within the window below.
ZONES = st.sampled_from(
    [
        *("UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia"),
        *("America/St_Johns", "Asia/Tehran", "Africa/Casablanca", "America/Sao_Paulo"),
        *("Africa/Cairo", "Antarctica/Troll", "America/Caracas", "Asia/Pyongyang"),
    ]
).map(ZoneInfo)
INSTANTS = st.datetimes(
    min_value=datetime(2010, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone.
    max_value=datetime(2019, 12, 31),  # noqa: DTZ001 - hypothesis adds the zone.
    timezones=st.just(UTC),
)
# With an even draw, hardly any instant would be near a jump.
JUMPS = st.sampled_from(
    [
        datetime(2011, 12, 30, 10, tzinfo=UTC),  # Samoa loses a day.
        datetime(2010, 11, 7, 2, 31, tzinfo=UTC),  # Newfoundland turns back into yesterday.
        datetime(2017, 10, 15, 3, tzinfo=UTC),  # Brazil skips a midnight.
        datetime(2016, 5, 1, 7, tzinfo=UTC),  # Venezuela moves by half an hour for good.
        datetime(2018, 3, 11, 7, tzinfo=UTC),  # The United States' spring
        datetime(2018, 11, 4, 6, tzinfo=UTC),  # and autumn.
        datetime(2015, 4, 4, 15, tzinfo=UTC),  # Lord Howe's half hour.
        datetime(2018, 9, 21, 19, 30, tzinfo=UTC),  # Iran's midnight.
    ]
)
NEAR_JUMPS = st.builds(
    lambda jump, away: jump + timedelta(seconds=away), JUMPS, st.integers(-100_000, 100_000)
)
WHEN = st.one_of(INSTANTS, NEAR_JUMPS)


@st.composite
def parts(
    draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = (), wraps: bool = True
) -> str:
    """One part of a field of numbers."""
    begin, end = draw(st.integers(low, high)), draw(st.integers(low, high))
    if not wraps:
        begin, end = min(begin, end), max(begin, end)
    step = draw(st.integers(1, min(high - low, high)))
    kinds = [f"{begin}", f"{begin}", f"{begin}-{end}", f"{begin}-{end}/{step}", f"{begin}/{step}"]
    kinds += ["*", "*", f"*/{step}", f"/{step}"]
    if names:
        kinds += [names[begin - 1], f"{names[begin - 1]}-{names[end - 1]}"]
    return draw(st.sampled_from(kinds))


def fields(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    return st.lists(parts(low, high, names), min_size=1, max_size=3).map(",".join)


_FROM_THE_END = st.one_of(
    st.sampled_from(["L", "LW"]),
    st.integers(0, 30).map("L-{}".format),
    st.integers(0, 30).map("L-{}W".format),
    st.integers(1, 31).map("{}W".format),
)
_DAYS_OF_MONTH = st.lists(st.one_of(parts(1, 31), _FROM_THE_END), min_size=1, max_size=3).map(
    ",".join
)
_DAYS_OF_WEEK = st.one_of(
    fields(1, 7, _WEEK),
    st.just("L"),
    st.integers(1, 7).map("{}L".format),
    st.sampled_from(_WEEK).map("{}L".format),
    st.builds(
        "{}#{}".format, st.one_of(st.integers(1, 7), st.sampled_from(_WEEK)), st.integers(1, 5)
    ),
)
_DAYS = st.one_of(
    st.tuples(_DAYS_OF_MONTH, fields(1, 12, _MONTHS), st.just("?")),
    st.tuples(st.just("?"), fields(1, 12, _MONTHS), _DAYS_OF_WEEK),
    st.just(("*", "*", "?")),
)
_TIMES = st.one_of(
    st.tuples(fields(0, 59), fields(0, 59), fields(0, 23)),
    # Sparse ones, in the small hours in which clocks change.
    st.tuples(st.just("0"), st.integers(0, 59).map(str), st.integers(0, 3).map(str)),
)
_YEARS = st.sampled_from(["", "", "", " *", " 2010-2019", " 2011/2", " */3", " 2018,2012-2014"])


def read(text: str) -> Cron | CronError:
    try:
        return Cron.parse(text)
    except CronError as error:
        return error


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    line = " ".join([*draw(_TIMES), *draw(_DAYS)]) + draw(_YEARS)
    cron = read(line)
    if isinstance(cron, CronError):
        # A line of this grammar has one possible mistake.
        assert "never fires" in cron.reason, line
        reject()
    return cron


TIMETABLES = st.builds(
    Timetable,
    cron=crons(),
    zone=ZONES,
    missing=st.sampled_from(MissingTime),
    repeated=st.sampled_from(RepeatedTime),
)
WINDOWS = st.builds(
    lambda timetable, one, days: Timetable(
        cron=timetable.cron,
        zone=timetable.zone,
        missing=timetable.missing,
        repeated=timetable.repeated,
        first=one,
        last=one + timedelta(days=days),
    ),
    TIMETABLES,
    WHEN,
    st.floats(0, 900),
)


@UNTIMED
@given(TIMETABLES, WHEN)
def test_the_next_after_the_previous_of_a_fire_is_that_fire(
    timetable: Timetable, when: datetime
) -> None:
    fire = timetable.next(when)
    assume(fire is not None)
    assert fire is not None
    assert fire > when
    before = timetable.previous(fire)
    assert before is None or before <= when
    if before is not None:
        assert timetable.next(before) == fire
    assert timetable.previous(fire + _TICK) == fire
    assert timetable.next(fire - _TICK) == fire


@UNTIMED
@given(TIMETABLES, WHEN)
def test_fires_between_two_instants_are_each_the_next_of_the_one_before(
    timetable: Timetable, when: datetime
) -> None:
    fires = list(islice(timetable.between(when, when + timedelta(days=800)), 60))
    assert all(one < two for one, two in pairwise(fires))
    last = when - _TICK
    for fire in fires:
        assert timetable.next(last) == fire
        last = fire
    for earlier, later in pairwise(fires):
        assert timetable.previous(later) == earlier


@UNTIMED
@given(WINDOWS, WHEN)
def test_no_fire_is_outside_the_window(timetable: Timetable, when: datetime) -> None:
    first, last = timetable.first, timetable.last
    assert first is not None
    assert last is not None
    wide = islice(timetable.between(first - timedelta(days=900), last + timedelta(days=900)), 200)
    for fire in (*wide, timetable.next(when), timetable.previous(when)):
        assert fire is None or first <= fire <= last
    open_end = Timetable(
        cron=timetable.cron,
        zone=timetable.zone,
        missing=timetable.missing,
        repeated=timetable.repeated,
    )
    inside = islice(open_end.between(first, last), 200)
    assert list(inside) == list(islice(timetable.between(first, last), 200))


@UNTIMED
@given(st.lists(TIMETABLES, max_size=4), WHEN)
def test_merged_fires_are_those_of_all_in_order_and_once(
    timetables: list[Timetable], when: datetime
) -> None:
    last = when + timedelta(hours=2)
    found = list(merged(timetables, when, last))
    assert found == sorted({fire for one in timetables for fire in one.between(when, last)})


@settings(deadline=None, max_examples=50)
@given(TIMETABLES, WHEN)
def test_a_line_fires_when_the_reference_says(timetable: Timetable, when: datetime) -> None:
    first = when.replace(microsecond=0)
    # Forty days, or the time of three thousand fires of a dense line.
    end = first + timedelta(days=40)
    last = next(islice(timetable.between(first, end), 3_000, None), end)
    clock = WallClock(timetable.zone, first.date(), last.date())
    walls = Quartz(timetable.cron.text).walls(
        first.astimezone(timetable.zone).replace(tzinfo=None) - timedelta(hours=26),
        last.astimezone(timetable.zone).replace(tzinfo=None) + timedelta(hours=3),
    )
    expected = clock.fires(walls)
    due = expected[timetable.missing.value, timetable.repeated.value]
    assert list(timetable.between(first, last)) == [fire for fire in due if first <= fire <= last]


@UNTIMED
@given(crons(), st.dates(date(1970, 1, 1), date(2300, 1, 1)))
def test_a_line_means_the_days_that_the_reference_says(cron: Cron, since: date) -> None:
    quartz = Quartz(cron.text)
    begin = since.toordinal() - date(1970, 1, 1).toordinal()
    expected = [
        begin + more
        for more in range(1_000)
        if quartz.matches_day(date.fromordinal(since.toordinal() + more))
    ]
    assert list(cron.days(begin, begin + 999)) == expected
    assert list(cron.days(begin, begin + 999, falling=True)) == expected[::-1]


_SYMBOLS = [
    *("0", "1", "7", "12", "23", "59", "60", "99", "2025", "*", "?", "/", "-", ",", "L", "W", "#"),
    *(" ", " ", " ", "\t", "MON", "fri", "JAN", "LW", "L-3", "6#3", "0 0 ", "* * ", "@daily"),
    *("\x00", "é", "٣", "%", "'", "\n"),
]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(_SYMBOLS), max_size=30).map("".join),
    st.lists(st.sampled_from([s for s in _SYMBOLS if s.strip()]), min_size=5, max_size=7).map(
        " ".join
    ),
)


@settings(deadline=None, max_examples=300)
@given(TEXTS)
def test_arbitrary_text_raises_nothing_but_a_cron_error(text: str) -> None:
    cron = read(text)
    if isinstance(cron, CronError):
        assert 1 <= cron.position <= min(len(text), MAX_LENGTH) + 1
        assert str(cron).isprintable()
        return
    assert cron.text == text
    assert cron.describe()
    assert next(cron.days(0, 10_000_000)) >= 0


@UNTIMED
@given(crons())
def test_every_line_has_words_and_at_least_one_fire(cron: Cron) -> None:
    timetable = Timetable(cron=cron, zone=ZoneInfo("UTC"))
    assert timetable.next(datetime(1969, 12, 31, tzinfo=UTC)) is not None
    assert cron.describe().isprintable()
    assert "  " not in cron.describe()

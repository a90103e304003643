"""Properties, references, system, global and effective parameters: spec 9.1 to 9.3, 9.5, 9.6."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from common.params import (
    CircularParameterError,
    DataType,
    Direct,
    ParameterError,
    ParameterLimitError,
    Property,
    effective_parameters,
    format_moment,
    parameter_types,
    parse_moment,
    parse_properties,
    properties_json,
    replace_references,
    resolve_global_params,
    substitute,
    system_parameters,
)

UTC_ZONE = ZoneInfo("UTC")
NEW_YORK = ZoneInfo("America/New_York")
NIGHT = datetime(2020, 3, 10, 2, 30, tzinfo=UTC)


def properties(**values: str) -> tuple[Property, ...]:
    return tuple(Property(prop=prop, value=value) for prop, value in values.items())


def resolved(
    declared: tuple[Property, ...],
    *,
    start_params: Mapping[str, str] | None = None,
) -> dict[str, str]:
    result = resolve_global_params(
        declared,
        moment=NIGHT,
        zone=UTC_ZONE,
        start_params=start_params or {},
    )
    return {each.prop: each.value for each in result}


def effective(
    global_properties: tuple[Property, ...] = (),
    local_properties: tuple[Property, ...] = (),
) -> dict[str, str]:
    return effective_parameters(
        global_properties,
        local_properties,
        system=system_parameters(moment=NIGHT, zone=UTC_ZONE),
        moment=NIGHT,
        zone=UTC_ZONE,
    )


class TestProperties:
    def test_the_codes_are_those_that_are_stored(self) -> None:
        assert [(each.name, each.value) for each in Direct] == [("IN", 0), ("OUT", 1)]
        names = " ".join(each.name for each in DataType)
        assert names == "VARCHAR INTEGER LONG FLOAT DOUBLE DATE TIME TIMESTAMP BOOLEAN LIST FILE"
        assert [each.value for each in DataType] == list(range(11))

    def test_a_stored_list_is_read_as_it_is(self) -> None:
        document = [{"prop": "n", "direct": "OUT", "type": "INTEGER", "value": "1"}]
        expected = (Property(prop="n", direct=Direct.OUT, type=DataType.INTEGER, value="1"),)
        assert parse_properties(document) == expected
        assert parse_properties(json.dumps(document)) == expected

    @pytest.mark.parametrize("document", [None, "", "  ", "null", "[]", []])
    def test_no_list_is_no_parameters(self, document: object) -> None:
        assert parse_properties(document) == ()

    def test_what_is_missing_has_a_default_and_codes_are_as_good_as_names(self) -> None:
        assert parse_properties([{"prop": "a", "value": "1", "unknown": {}}]) == (
            Property(prop="a", direct=Direct.IN, type=DataType.VARCHAR, value="1"),
        )
        assert parse_properties([{"prop": "a", "direct": 1, "type": "8"}]) == (
            Property(prop="a", direct=Direct.OUT, type=DataType.BOOLEAN, value=""),
        )
        assert parse_properties('[{"prop":"a","direct":"out","type":1}]') == (
            Property(prop="a", direct=Direct.OUT, type=DataType.INTEGER, value=""),
        )

    @pytest.mark.parametrize(
        ("value", "text"),
        [(1, "1"), (-2.5, "-2.5"), (True, "true"), (False, "false"), ("", ""), ("x", "x")],
    )
    def test_numbers_and_booleans_become_text(self, value: object, text: str) -> None:
        assert parse_properties([{"prop": "a", "value": value}])[0].value == text
        assert parse_properties(json.dumps([{"prop": "a", "value": value}]))[0].value == text

    def test_a_number_in_json_text_stays_as_it_was_written(self) -> None:
        digits = "9" * 10_000
        read = parse_properties(f'[{{"prop":"a","value":1.10}},{{"prop":"b","value":{digits}}}]')
        assert [each.value for each in read] == ["1.10", digits]

    def test_t52_a_null_value_is_empty_text(self) -> None:
        assert parse_properties([{"prop": "a", "value": None}])[0].value == ""

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            ({}, "must be a JSON list, not an object"),
            (5, "not a number"),
            ("{", "not valid JSON"),
            ("[" * 100_000, "not valid JSON"),
            ('[{"prop":"a","value":NaN}]', "NaN"),
            (["x"], "parameter 0 must be a JSON object, not text"),
            ([{"prop": "a"}, {"value": "1"}], "parameter 1: key 'prop' must be a name, not null"),
            ([{"prop": ""}], "parameter 0: key 'prop' .* not empty text"),
            ([{"prop": 7}], "parameter 0: key 'prop' .* not a number"),
            ([{"prop": "a", "direct": "UP"}], "parameter 0: key 'direct' .* IN, OUT, not 'UP'"),
            ([{"prop": "a", "direct": True}], "parameter 0: key 'direct' .* not a boolean"),
            ([{"prop": "a", "type": 11}], "parameter 0: key 'type' must be one of VARCHAR"),
            ([{"prop": "a", "type": -1}], "parameter 0: key 'type'"),
            ([{"prop": "a", "value": []}], "parameter 0: key 'value' .* not a list"),
            ([{"prop": "a", "value": {}}], "parameter 0: key 'value' .* not an object"),
            ([{"prop": "a", "value": float("inf")}], "parameter 0: key 'value'"),
            ([{"prop": "a", "value": 10**5000}], "parameter 0: key 'value' is too large"),
        ],
    )
    def test_a_mistake_is_named_with_its_place(self, document: object, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            parse_properties(document)

    def test_the_stored_form_has_names_and_keeps_letters_of_all_alphabets(self) -> None:
        declared = (Property(prop="日", type=DataType.DATE, value='a"b\n'),)
        text = properties_json(declared)
        assert text == '[{"prop":"日","direct":"IN","type":"DATE","value":"a\\"b\\n"}]'
        assert parse_properties(text) == declared

    def test_the_stored_form_can_always_be_encoded(self) -> None:
        declared = properties(a="\ud800\x00")
        text = properties_json(declared)
        assert text.encode()
        assert "\x00" not in text
        assert parse_properties(text) == declared


class TestSystemParameters:
    def test_a_normal_run_works_on_the_day_before(self) -> None:
        assert system_parameters(moment=NIGHT, zone=UTC_ZONE) == {
            "system.biz.date": "20200309",
            "system.biz.curdate": "20200310",
            "system.datetime": "20200310023000",
        }

    def test_built_ins_are_added_and_cannot_change_the_date(self) -> None:
        built_ins = {"system.project.name": "p", "system.datetime": "x"}
        system = system_parameters(moment=NIGHT, zone=UTC_ZONE, built_ins=built_ins)
        assert (system["system.project.name"], system["system.datetime"]) == ("p", "20200310023000")

    def test_t45_the_business_date_is_the_day_before_on_a_day_of_25_hours(self) -> None:
        late = datetime(2019, 11, 3, 23, 30, tzinfo=NEW_YORK)
        system = system_parameters(moment=late, zone=NEW_YORK)
        assert system["system.biz.date"] == "20191102"

    def test_a_moment_at_the_edge_of_time_is_a_clear_error(self) -> None:
        with pytest.raises(ParameterError, match="years 1 to 9999"):
            system_parameters(moment=datetime(1, 1, 1, tzinfo=UTC), zone=UTC_ZONE)


class TestReferences:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("${a}", "1"),
            ("x${a}y${a}", "x1y1"),
            ("${n${a}}", "one"),
            ("${n${n1x}}", "${n${n1x}}"),
            ("$${a}", "$1"),
            ("${deep}", "<1>"),
            ("${unknown} $HOME ${HOME}", "${unknown} $HOME ${HOME}"),
            ("${a:-2} ${ a } ${}", "${a:-2} ${ a } ${}"),
            ("${dir:-/in/${a}}", "${dir:-/in/1}"),
            ("f() { echo ${a}; }", "f() { echo 1; }"),
            ("${ ${a} {", "${ 1 {"),
            ("${a{b}c}", "braces"),
            ("} ${a} {", "} 1 {"),
            ("$ { ${", "$ { ${"),
            ("${setValue(k=${a})}", "${setValue(k=1)}"),
        ],
    )
    def test_known_names_are_replaced_and_all_else_stays(self, text: str, expected: str) -> None:
        known = {"a": "1", "n1": "one", "deep": "<${mid}>", "mid": "${a}", "a{b}c": "braces"}
        assert replace_references(text, known) == expected

    def test_a_cycle_is_an_error_that_names_the_way_round(self) -> None:
        with pytest.raises(CircularParameterError) as caught:
            replace_references("${x}", {"x": "${a}", "a": "1${b}", "b": "${a}"})
        assert caught.value.chain == ("a", "b", "a")
        assert str(caught.value) == "circular parameters: 'a' -> 'b' -> 'a'"

    def test_a_name_that_needs_its_own_value_is_a_cycle(self) -> None:
        with pytest.raises(CircularParameterError):
            replace_references("${x}", {"x": "${${x}}"})

    def test_using_a_value_twice_is_no_cycle(self) -> None:
        known = {"a": "${c}", "b": "${c}${a}", "c": "1"}
        assert replace_references("${a}${b}${c}", known) == "1111"

    @pytest.mark.parametrize("backwards", [False, True])
    def test_a_chain_of_ten_is_followed_and_a_longer_one_refused_x11(self, backwards: bool) -> None:
        chain = {f"p{i}": f"${{p{i + 1}}}" for i in range(1, 11)} | {"p11": "end"}
        order = sorted(chain, key=lambda name: int(name[1:]), reverse=backwards)
        assert replace_references("${p2}", chain) == "end"
        with pytest.raises(ParameterLimitError, match=r"10 deep: 'p1' -> 'p2' -> .*'p11'"):
            replace_references("".join(f"${{{name}}}" for name in order), chain)

    def test_values_that_multiply_are_refused_before_they_fill_the_memory(self) -> None:
        known = {f"p{i}": f"${{p{i + 1}}}" * 100 for i in range(9)} | {"p9": "x"}
        with pytest.raises(ParameterLimitError, match="grow too large"):
            replace_references("${p0}", known)

    def test_empty_values_that_multiply_cost_nothing(self) -> None:
        known = {f"p{i}": f"${{p{i + 1}}}" * 100 for i in range(9)} | {"p9": ""}
        assert replace_references("${p0}", known) == ""

    def test_many_large_values_together_are_refused(self) -> None:
        known = {"big": "x" * 1_000_000} | {f"p{i}": f"{i}${{big}}" for i in range(100)}
        with pytest.raises(ParameterLimitError, match="grow too large"):
            effective(properties(**known))

    def test_a_long_text_may_hold_references_and_a_long_name_is_cut_in_a_message(self) -> None:
        assert replace_references("x" * 3_000_000 + "${a}", {"a": "1"}).endswith("x1")
        name = "n" * 100_000
        with pytest.raises(CircularParameterError) as caught:
            replace_references(f"${{{name}}}", {name: f"${{{name}}}"})
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize("nest", ["${", "${a", "${{", "${a${", "${${a}"])
    def test_a_megabyte_of_nested_braces_is_answered(self, nest: str) -> None:
        count = 500_000 // len(nest)
        for text in (nest * count, nest * count + "}" * nest.count("{") * count):
            assert len(replace_references(text, {"a": "b"})) <= len(text)


class TestResolving:
    def test_globals_refer_to_globals_to_any_depth_and_to_the_date(self) -> None:
        assert resolved(
            properties(a="${b}/x", b="${c}", c="$[yyyyMMdd-1]", d="${system.biz.date}", e="plain")
        ) == {"a": "20200309/x", "b": "20200309", "c": "20200309", "d": "20200309", "e": "plain"}

    def test_t87_a_dollar_is_resolved_anywhere_in_a_value(self) -> None:
        assert resolved(properties(a="a-$[yyyyMMdd]", b="b ${a}")) == {
            "a": "a-20200310",
            "b": "b a-20200310",
        }

    def test_t52_of_duplicates_the_last_one_wins(self) -> None:
        assert resolved(properties(a="1") + properties(b="${a}") + properties(a="2")) == {
            "a": "2",
            "b": "2",
        }

    def test_start_params_replace_values_and_add_parameters(self) -> None:
        result = resolve_global_params(
            (Property(prop="n", type=DataType.INTEGER, value="1"), *properties(m="${n}${new}")),
            moment=NIGHT,
            zone=UTC_ZONE,
            start_params={"n": "2", "new": "$[dd]"},
        )
        assert result == (
            Property(prop="n", type=DataType.INTEGER, value="2"),
            *properties(m="210", new="10"),
        )

    def test_a_global_named_system_datetime_moves_the_placeholders(self) -> None:
        declared = properties(**{"system.datetime": "20000101000000", "a": "$[yyyyMMdd]"})
        assert resolved(declared)["a"] == "20000101"

    def test_unknown_names_and_shell_text_stay(self) -> None:
        kept = {"a": "${HOME}/$[1]", "b": "$[ $x + 1 ]"}
        assert resolved(properties(**kept)) == kept

    def test_no_parameters_are_none(self) -> None:
        assert resolved(()) == {}

    def test_a_cycle_is_an_error(self) -> None:
        with pytest.raises(CircularParameterError, match="'a' -> 'b' -> 'a'"):
            resolved(properties(a="${b}", b="${a}"))

    def test_t45_resolving_keeps_which_of_two_equal_times_is_meant(self) -> None:
        second = datetime(2019, 11, 3, 6, 30, tzinfo=UTC)  # 01:30 for the second time
        (only,) = resolve_global_params(
            properties(a="$[timestamp(yyyyMMddHHmmss)]"),
            moment=second,
            zone=NEW_YORK,
        )
        assert only.value == str(int(second.timestamp()))


class TestEffectiveParameters:
    def test_local_wins_over_global_and_global_over_system(self) -> None:
        found = effective(
            properties(a="g", b="g", **{"system.biz.date": "mine"}), properties(b="l", c="l")
        )
        assert (found["a"], found["b"], found["c"]) == ("g", "l", "l")
        assert found["system.biz.date"] == "mine"
        assert found["system.biz.curdate"] == "20200310"

    def test_a_local_may_use_globals_system_parameters_and_the_date(self) -> None:
        found = effective(
            properties(region="eu", day="5"),
            properties(a="${region}", b="x/${system.biz.date}", c="$[yyyyMMdd-1]", day="${day}-l"),
        )
        assert (found["a"], found["b"], found["c"]) == ("eu", "x/20200309", "20200309")
        assert found["day"] == "5-l"

    def test_a_local_cannot_use_another_local(self) -> None:
        assert effective((), properties(a="1", b="${a}"))["b"] == "${a}"

    def test_t52b_there_is_processing_even_without_parameters(self) -> None:
        script = "echo $[yyyyMMdd] ${system.biz.date} ${HOME}"
        text = substitute(script, effective(), moment=NIGHT, zone=UTC_ZONE)
        assert text == "echo 20200310 20200309 ${HOME}"

    def test_values_and_scripts_count_from_the_same_moment(self) -> None:
        given = properties(a="$[yyyyMMdd]", **{"system.datetime": "20200401000000"})
        found = effective(given, properties(b="$[yyyyMMdd]"))
        text = substitute("${a} ${b} $[yyyyMMdd]", found, moment=NIGHT, zone=UTC_ZONE)
        assert text == "20200401 20200401 20200401"


def test_a_script_has_its_references_replaced_before_its_placeholders() -> None:
    found = {"n": "3", "day": "$[dd]"}
    text = substitute("$[yyyyMMdd-${n}] ${day} $[ $n + 1 ]", found, moment=NIGHT, zone=UTC_ZONE)
    assert text == "20200307 10 $[ $n + 1 ]"


def test_the_text_form_of_a_moment_is_read_in_full_or_not_at_all() -> None:
    moment = parse_moment("2019-07-04 10:20:30", NEW_YORK)
    assert moment == datetime(2019, 7, 4, 14, 20, 30, tzinfo=UTC)
    assert format_moment(moment, NEW_YORK) == "2019-07-04 10:20:30"
    for other in (None, "", "2019-07-04", "2019-07-04 10:20", "2019-02-30 00:00:00", "x"):
        assert parse_moment(other, NEW_YORK) is None
    assert parse_moment("2019-07-04 10:20:30\n", NEW_YORK) is None


class TestPrecedence:
    """The table in the package's docstring."""

    LAYERS = ("built-in", "global", "pool", "local", "start-up")
    NAME = "system.biz.date"

    def found(self, *layers: str, local: str = "local", direct: Direct = Direct.IN) -> str:
        """The value of a parameter that is declared in these layers, each by its own name."""
        start = {self.NAME: "start-up"} if "start-up" in layers else {}
        declared = properties(**{self.NAME: "global"}) if "global" in layers else ()
        parameters = effective_parameters(
            properties(**resolved(declared, start_params=start)),
            [Property(prop=self.NAME, value=local, direct=direct)] if "local" in layers else [],
            system={self.NAME: "built-in"} if "built-in" in layers else {},
            moment=NIGHT,
            zone=UTC_ZONE,
            pool=properties(**{self.NAME: "pool"}) if "pool" in layers else (),
            start_params=start,
        )
        return parameters.get(self.NAME, "unknown")

    @pytest.mark.parametrize("strong", range(1, 5))
    @pytest.mark.parametrize("weak", range(4))
    def test_the_stronger_of_two_layers_counts(self, weak: int, strong: int) -> None:
        if weak < strong:
            assert self.found(self.LAYERS[weak], self.LAYERS[strong]) == self.LAYERS[strong]
        assert self.found(*self.LAYERS[: strong + 1]) == self.LAYERS[strong]

    def test_an_empty_local_takes_the_pool_s_value(self) -> None:
        assert self.found("global", "pool", "local", local="") == "pool"

    def test_an_empty_local_hides_a_global_that_no_pool_has(self) -> None:
        assert self.found("global", "local", local="") == ""

    def test_a_local_that_is_put_out_is_not_read(self) -> None:
        assert self.found("global", "local", direct=Direct.OUT) == "global"
        assert self.found("pool", "local", direct=Direct.OUT) == "pool"
        assert self.found("local", direct=Direct.OUT) == "unknown"

    def test_a_local_may_be_made_of_what_the_pool_has(self) -> None:
        parameters = effective_parameters(
            properties(day="global"),
            properties(day="${day}-x", copy="${other}"),
            system={},
            moment=NIGHT,
            zone=UTC_ZONE,
            pool=properties(day="pool", other="$[yyyy] ${day}"),
        )
        assert parameters["day"] == "pool-x"
        assert parameters["other"] == "$[yyyy] ${day}"

    def test_a_start_parameter_counts_as_the_master_has_resolved_it(self) -> None:
        start = {"a": "$[yyyy]", "b": "${a}"}
        parameters = effective_parameters(
            properties(**resolved(properties(a="x"), start_params=start)),
            properties(a="local"),
            system={},
            moment=NIGHT,
            zone=UTC_ZONE,
            start_params=start,
        )
        assert parameters == {"a": "2020", "b": "2020"}

    def test_a_start_parameter_that_is_in_no_globals_counts_as_given(self) -> None:
        parameters = effective_parameters(
            (),
            properties(a="local"),
            system={},
            moment=NIGHT,
            zone=UTC_ZONE,
            start_params={"a": "$[yyyy]"},
        )
        assert parameters == {"a": "2020"}

    def test_a_type_is_that_of_the_strongest_who_reads_the_parameter(self) -> None:
        def typed(kind: DataType, direct: Direct = Direct.IN) -> Property:
            return Property(prop="a", type=kind, direct=direct)

        globals_, pool = [typed(DataType.INTEGER)], [typed(DataType.LONG)]
        assert parameter_types(globals_, []) == {"a": DataType.INTEGER}
        assert parameter_types(globals_, [], pool=pool) == {"a": DataType.LONG}
        local = [typed(DataType.DATE)]
        assert parameter_types(globals_, local, pool=pool) == {"a": DataType.DATE}
        local = [typed(DataType.DATE, Direct.OUT)]
        assert parameter_types(globals_, local, pool=pool) == {"a": DataType.LONG}

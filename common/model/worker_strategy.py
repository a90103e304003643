"""Strategies by which workers are chosen, and their reading from Druid's JSON. Pure.

`{"selectStrategy": {"type": "equalDistribution"}}`; the types are `fillCapacity` and
`equalDistribution`, also with `…WithAffinity` (`affinityConfig`) or `…WithCategorySpec`
(`workerCategorySpec`). As in Druid, a strategy of either kind without its object has no preference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

_AFFINITY: Final = "WithAffinity"
_CATEGORY: Final = "WithCategorySpec"


class Filling(Enum):
    """The order among runnable workers."""

    FILL_CAPACITY = "fillCapacity"
    EQUAL_DISTRIBUTION = "equalDistribution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Datasets with hosts of their own, where no others go; if strong, they go nowhere else."""

    hosts: Mapping[str, Collection[str]]
    is_strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRule:
    """The category of workers for a task type: by the dataset, else the default one if any."""

    default: str | None = None
    by_dataset: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Task types with preferred categories of workers."""

    rules: Mapping[str, CategoryRule]
    is_strong: bool = False


Preference: TypeAlias = Affinity | Categories


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to choose; the default is Druid's, and that of stream tasks."""

    filling: Filling = Filling.EQUAL_DISTRIBUTION
    preference: Preference | None = None


DEFAULT_DOCUMENT: Final[Mapping[str, Any]] = {"selectStrategy": {"type": "equalDistribution"}}
_TYPES_OF_DRUID: Final[Mapping[str, str]] = {"index_kafka": "STREAM", "compact": "COMPACT"}
"""Druid's task types in a map of categories, with the types of the tasks that do this work here."""
_TYPES: Final = tuple(
    f"{each.value}{more}" for each in Filling for more in ("", _AFFINITY, _CATEGORY)
)


class StrategyError(ValueError):
    """A document is no strategy; `mistakes` names each with its place."""

    def __init__(self, mistakes: Collection[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = tuple(mistakes)


def read_strategy(document: object) -> Strategy:
    """Read a strategy; `StrategyError` with all its mistakes."""
    mistakes: list[str] = []
    whole = _object(document, "the document", mistakes)
    _no_others(whole, ("selectStrategy",), "the document", mistakes)
    select = _without_limits(_object(whole.get("selectStrategy"), "selectStrategy", mistakes))
    kind = select.get("type")
    if kind not in _TYPES:
        mistakes.append(f"selectStrategy.type: must be one of {', '.join(_TYPES)}")
        raise StrategyError(mistakes)
    filling = next(each for each in Filling if str(kind).startswith(each.value))
    more = str(kind).removeprefix(filling.value)
    preference: Preference | None = None
    if more == _AFFINITY:
        _no_others(select, ("type", "affinityConfig"), "selectStrategy", mistakes)
        if select.get("affinityConfig") is not None:
            preference = _affinity(select["affinityConfig"], mistakes)
    elif more == _CATEGORY:
        _no_others(select, ("type", "workerCategorySpec"), "selectStrategy", mistakes)
        if select.get("workerCategorySpec") is not None:
            preference = _categories(select["workerCategorySpec"], mistakes)
    else:
        _no_others(select, ("type",), "selectStrategy", mistakes)
    if mistakes:
        raise StrategyError(mistakes)
    return Strategy(filling=filling, preference=preference)


def _without_limits(select: dict[str, Any]) -> dict[str, Any]:
    """Drop `taskLimits` that limit nothing, as Druid shows them; others are unknown here."""
    limits = select.get("taskLimits")
    if isinstance(limits, dict) and not any(limits.values()):
        return {key: each for key, each in select.items() if key != "taskLimits"}
    return select


def _affinity(value: object, mistakes: list[str]) -> Affinity:
    place = "selectStrategy.affinityConfig"
    config = _object(value, place, mistakes)
    _no_others(config, ("affinity", "strong"), place, mistakes)
    hosts: dict[str, tuple[str, ...]] = {}
    for dataset, each in _object(config.get("affinity"), f"{place}.affinity", mistakes).items():
        if not isinstance(each, list) or not all(isinstance(host, str) for host in each):
            mistakes.append(f"{place}.affinity.{dataset:.100}: must be a list of hosts")
            continue
        hosts[dataset] = tuple(each)
    return Affinity(hosts=hosts, is_strong=_strong(config, place, mistakes))


def _categories(value: object, mistakes: list[str]) -> Categories:
    place = "selectStrategy.workerCategorySpec"
    config = _object(value, place, mistakes)
    _no_others(config, ("categoryMap", "strong"), place, mistakes)
    rules: dict[str, CategoryRule] = {}
    given_map = config.get("categoryMap")
    by_kind = {} if given_map is None else _object(given_map, f"{place}.categoryMap", mistakes)
    for kind, each in by_kind.items():
        within = f"{place}.categoryMap.{kind:.100}"
        rule = _object(each, within, mistakes)
        keys = ("defaultCategory", "categoryAffinity", "supervisorIdCategoryAffinity")
        _no_others(rule, keys, within, mistakes)
        default = rule.get("defaultCategory")
        if default is not None and not isinstance(default, str):
            mistakes.append(f"{within}.defaultCategory: must be the category of workers")
            default = None
        by_dataset: dict[str, Any] = {}
        # A supervisor has the name of its dataset.
        for key in keys[1:]:
            given = rule.get(key)
            found = {} if given is None else _object(given, f"{within}.{key}", mistakes)
            if not all(isinstance(category, str) for category in found.values()):
                mistakes.append(f"{within}.{key}: must name a category for each dataset")
                found = {}
            by_dataset |= found
        type_ = _TYPES_OF_DRUID.get(kind, kind)
        if type_ in rules:
            mistakes.append(f"{within}: {type_} is given too; keep one of the two")
        rules[type_] = CategoryRule(default=default, by_dataset=by_dataset)
    return Categories(rules=rules, is_strong=_strong(config, place, mistakes))


def _object(value: object, place: str, mistakes: list[str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    mistakes.append(f"{place}: must be an object")
    return {}


def _strong(config: Mapping[str, Any], place: str, mistakes: list[str]) -> bool:
    strong = config.get("strong")
    if strong is None:
        return False
    if not isinstance(strong, bool):
        mistakes.append(f"{place}.strong: must be true or false")
        return False
    return strong


def _no_others(
    value: Mapping[str, Any], keys: Collection[str], place: str, mistakes: list[str]
) -> None:
    others = [f"{key:.40}" for key in value if key not in keys and value[key] is not None]
    if others:
        mistakes.append(f"{place}: has no key {', '.join(others)}; it has {', '.join(keys)}")

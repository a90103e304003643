"""The parameters of a command: JSON, read as text → text (contract §3.1). Pure.

They stand in `t_ds_command.command_param`, and in the row of the process instance that the command
began. The one place that knows the names of the keys. Rows may be typed by hand, so the text is
hostile: every mistake in it is a `BadCommandError` that says what is wrong. Keys that mean nothing
here are kept.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from common.errors import BadCommandError
from common.model.date_rules import DateRule

_MAX_ID_DIGITS: Final = 20


class ParamKey(StrEnum):
    """The keys that mean something, spelt as clients write them; in the order of `text`."""

    PROCESS_INSTANCE_ID = "ProcessInstanceId"
    WAITING_INSTANCE_ID = "WaittingThreadInstanceId"
    START_NODE_NAMES = "StartNodeNameList"
    START_PARAMS = "StartParams"
    TIME_ZONE = "schedule_timezone"
    EXECUTION_TYPE = "executionType"
    ENVIRONMENT_CODE = "environmentCode"
    # Of a command that restarts a run, and of the run that it has restarted.
    VERSION = "definitionVersion"
    # Of a run that took the latest version: SUB_PROCESS tasks whose children run all tasks again.
    FRESH_CHILDREN = "freshChildNameList"
    # Of the run of a sub process; the first is the relation's.
    RELATION_ID = "id"
    PARENT_PROCESS_INSTANCE_ID = "parentProcessInstanceId"
    PARENT_TASK_INSTANCE_ID = "parentTaskInstanceId"
    CHILD_ID = "processInstanceId"
    DEFINITION_NAME = "processDefinitionName"
    # Of a complement that a row asks for.
    FIRST_DATE = "complementStartDate"
    LAST_DATE = "complementEndDate"
    DATES = "complementScheduleDateList"
    PARALLELISM = "expectedParallelismNumber"
    RUN_ORDER = "executionOrder"
    DOWNSTREAM = "complementDependentMode"
    ALL_LEVELS = "allLevelDependent"
    ON_FAILURE = "onFailure"
    REPROCESS = "reprocess"
    DATE_RULE = "complementDateRule"
    CONFIRMED = "confirmed"


_RANK: Final = {str(key): rank for rank, key in enumerate(ParamKey)}
LATEST: Final = "latest"
"""The value of `VERSION` for the latest version of the definition."""
_RELATION_KEYS: Final = (
    ParamKey.RELATION_ID,
    ParamKey.PARENT_PROCESS_INSTANCE_ID,
    ParamKey.PARENT_TASK_INSTANCE_ID,
)


@dataclass(frozen=True, slots=True, eq=False)
class CommandParam(Mapping[str, str]):
    """The parameters of one command, every value as text; equal to any mapping of the same texts.

    A value that is no text in the JSON is its JSON here, and one that is null is left out.
    """

    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> CommandParam:
        """Read the column; NULL and blanks are no parameters. Raises `BadCommandError`."""
        if text is None or not text.strip():
            return cls()
        document = _document("command_param", text)
        if not isinstance(document, dict):
            raise BadCommandError(
                f"command_param must be a JSON object, not {type(document).__name__}"
            )
        return cls(_texts(document))

    @classmethod
    def of_instance(cls, text: str | None) -> CommandParam:
        """Read the column of a process instance, which a master wrote.

        Raises `BadCommandError` for what is no JSON; JSON of another kind is no parameters.
        """
        try:
            document = json.loads(text or "{}", parse_float=str)
        except (ValueError, RecursionError) as error:
            raise BadCommandError(
                f"command_param of the instance can't be read: {error}"
            ) from error
        return cls(_texts(document)) if isinstance(document, dict) else cls()

    @classmethod
    def as_stored(cls, text: str | None) -> CommandParam:
        """Read the column of a process instance; what can't be read is no parameters.

        They were read strictly when the run began: what does not parse now was not the user's.
        """
        try:
            return cls.of_instance(text)
        except BadCommandError:
            return cls()

    @classmethod
    def of(
        cls,
        *,
        process_instance_id: int | None = None,
        start_node_names: Sequence[str] = (),
        start_params: Mapping[str, object] | str | None = None,
        timezone_id: str | None = None,
        execution_type: str | None = None,
        environment_code: int | None = None,
        takes_latest: bool = False,
        date_rule: DateRule | None = None,
    ) -> CommandParam:
        """Build parameters; `start_params` given as text are taken as they are."""
        texts: dict[str, str] = {}
        if process_instance_id is not None:
            texts[ParamKey.PROCESS_INSTANCE_ID] = str(process_instance_id)
        if start_node_names:
            texts[ParamKey.START_NODE_NAMES] = ",".join(start_node_names)
        if start_params:
            texts[ParamKey.START_PARAMS] = (
                start_params if isinstance(start_params, str) else json.dumps(start_params)
            )
        if timezone_id is not None:
            texts[ParamKey.TIME_ZONE] = timezone_id
        if execution_type is not None:
            texts[ParamKey.EXECUTION_TYPE] = execution_type
        if environment_code is not None:
            texts[ParamKey.ENVIRONMENT_CODE] = str(environment_code)
        if takes_latest:
            texts[ParamKey.VERSION] = LATEST
        if date_rule is not None:
            texts[ParamKey.DATE_RULE] = date_rule.value
        return cls(texts)

    def text(self) -> str:
        """The canonical JSON: every value text, known keys first, the others by name."""
        return json.dumps(dict(self._in_order()), ensure_ascii=False)

    def row_text(self) -> str:
        """The JSON that a client puts into a row: start-up parameters as an object of their own.

        They must be such an object.
        """
        document: dict[str, object] = dict(self._in_order())
        if self.start_params is not None:
            document[ParamKey.START_PARAMS] = _start_object(self.start_params)
        return json.dumps(document, ensure_ascii=False)

    def _in_order(self) -> list[tuple[str, str]]:
        return sorted(
            ((str(key), value) for key, value in self.texts.items()),
            key=lambda item: (_RANK.get(item[0], len(_RANK)), item[0]),
        )

    def replaced(self, changes: Mapping[str, str]) -> CommandParam:
        """These parameters, with the values of `changes` in place of former ones or added."""
        return CommandParam({**self.texts, **changes})

    def without(self, *keys: ParamKey) -> CommandParam:
        """These parameters without the values of `keys`."""
        return CommandParam({key: text for key, text in self.texts.items() if key not in keys})

    def __getitem__(self, key: str) -> str:
        return self.texts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def instance_id(self, key: ParamKey = ParamKey.PROCESS_INSTANCE_ID) -> int | None:
        """The process instance that the command is about; None if it names none.

        Raises `BadCommandError` for what can be no id.
        """
        text = self.get(key, "")
        if not text:
            return None
        # Python refuses to read numbers of thousands of digits.
        if (
            not (text.isascii() and text.isdecimal())
            or len(text) > _MAX_ID_DIGITS
            or not 0 < int(text) < 2**31
        ):
            raise BadCommandError(
                f"command_param: {key} must be the id of an instance, not {text[:40]!r}"
            )
        return int(text)

    @property
    def start_node_names(self) -> tuple[str, ...]:
        """The nodes to start from, in the order given, each once; empty means all."""
        names = self.get(ParamKey.START_NODE_NAMES, "").split(",")
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))

    @property
    def takes_latest(self) -> bool:
        """True if a restart takes the latest version of the definition.

        Raises `BadCommandError` for any other version.
        """
        text = self.get(ParamKey.VERSION, "").strip()
        if text in ("", LATEST):
            return text == LATEST
        raise BadCommandError(
            f"command_param: {ParamKey.VERSION} must be {LATEST!r}, not {text[:40]!r}"
        )

    @property
    def took_latest(self) -> bool:
        """True if the last restart of the run took the latest version; it was checked then."""
        return self.get(ParamKey.VERSION) == LATEST

    @property
    def fresh_children(self) -> tuple[str, ...]:
        """The SUB_PROCESS tasks of the run whose children run all tasks again."""
        return tuple(name for name in self.get(ParamKey.FRESH_CHILDREN, "").split(",") if name)

    @property
    def start_params(self) -> str | None:
        """The start-up parameters as given, which may be no JSON; `start_values` reads them."""
        return self.get(ParamKey.START_PARAMS)

    @property
    def timezone_id(self) -> str | None:
        """The zone in which the command's dates are read; None if it names none."""
        return self.get(ParamKey.TIME_ZONE, "").strip() or None

    @property
    def environment_code(self) -> int | None:
        """The environment of tasks that name none; None if the command names none either.

        Raises `BadCommandError` for what can be no code; -1 is none, as DolphinScheduler writes it.
        """
        text = self.get(ParamKey.ENVIRONMENT_CODE, "").strip()
        if text in ("", "-1"):
            return None
        if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_ID_DIGITS:
            raise BadCommandError(
                f"{ParamKey.ENVIRONMENT_CODE} must be the code of an environment, not {text[:40]!r}"
            )
        return int(text)

    @property
    def stored_environment_code(self) -> int | None:
        """The environment of a run that has begun; None for what can be no code."""
        try:
            return self.environment_code
        except BadCommandError:
            return None

    @property
    def date_rule(self) -> DateRule | None:
        """The rule of a complement's dates; None if the command names none.

        Raises `BadCommandError` for an unknown one.
        """
        text = self.get(ParamKey.DATE_RULE, "").strip()
        if not text:
            return None
        if text.lower() not in set(DateRule):
            raise BadCommandError(
                f"{ParamKey.DATE_RULE} must be one of {', '.join(DateRule)}, not {text[:40]!r}"
            )
        return DateRule(text.lower())

    def relation(self) -> dict[str, str]:
        """The keys that name a sub process's relation and its parent, as far as they are given."""
        return {key: self[key] for key in _RELATION_KEYS if key in self}

    def of_child(self, child_id: int) -> CommandParam:
        """The parameters as a sub process keeps them: they name the sub process itself."""
        return self.replaced({ParamKey.CHILD_ID: str(child_id)})


def child_command_text(
    *,
    relation_id: int,
    parent_process_instance_id: int,
    parent_task_instance_id: int,
    child_id: int,
    definition_name: str | None,
) -> str:
    """The `command_param` by which a SUB_PROCESS attempt asks for its child; 0 is a new child.

    In this one the contract has the ids as numbers.
    """
    document: dict[str, Any] = {
        ParamKey.RELATION_ID: relation_id,
        ParamKey.PARENT_PROCESS_INSTANCE_ID: parent_process_instance_id,
        ParamKey.PARENT_TASK_INSTANCE_ID: parent_task_instance_id,
        ParamKey.CHILD_ID: child_id,
    }
    if child_id:
        document[ParamKey.PROCESS_INSTANCE_ID] = child_id
    if definition_name is not None:
        document[ParamKey.DEFINITION_NAME] = definition_name
    return json.dumps(document, ensure_ascii=False)


def start_document(text: str | None) -> dict[str, Any]:
    """Read start-up parameters, decimals as written and secret ones as their values.

    Raises `BadCommandError`.
    """
    return unmarked(_start_object(text))


def marked(params: Mapping[str, Any], secret: Collection[str]) -> dict[str, Any]:
    """Return start-up parameters as they are stored: each of the names in `secret` with a mark.

    A marked value is a property like those of definitions. `common.masking` knows this form: such a
    value is encrypted in rows and masked in answers, whatever its name.
    """
    return {
        name: {"prop": name, "value": value, "secret": True} if name in secret else value
        for name, value in params.items()
    }


def unmarked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return start-up parameters with the values of marked ones in their places."""
    return {
        name: value["value"] if is_marked(name, value) else value for name, value in params.items()
    }


def is_marked(name: str, value: object) -> bool:
    """True if `marked` made the value."""
    return (
        isinstance(value, dict)
        and value.keys() == {"prop", "value", "secret"}
        and value["prop"] == name
        and value["secret"] is True
    )


def _start_object(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    document = _document(ParamKey.START_PARAMS, text)
    if not isinstance(document, dict):
        raise BadCommandError(f"{ParamKey.START_PARAMS} must be an object of names and values")
    return document


def start_values(text: str | None) -> dict[str, str]:
    """Start-up parameters as texts: null is empty, another value its JSON.

    Raises `BadCommandError`.
    """
    return {
        name: value if isinstance(value, str) else "" if value is None else json.dumps(value)
        for name, value in start_document(text).items()
    }


def stored_start_values(command_param: str | None) -> dict[str, str]:
    """The start-up parameters of a process instance as texts; none if they can't be read."""
    try:
        return start_values(CommandParam.as_stored(command_param).start_params)
    except BadCommandError:
        return {}


def example(values: Mapping[ParamKey, object]) -> str:
    """A `command_param` to be shown in a message."""
    return f"command_param {json.dumps(values)}"


def _texts(document: Mapping[str, object]) -> dict[str, str]:
    # Writers mix texts and numbers; start-up parameters are an object of their own.
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in document.items()
        if value is not None
    }


def _document(name: str, text: str) -> object:
    try:
        # A decimal stays the text it was written as: 1.10 must not become 1.1.
        document: object = json.loads(text, parse_float=str)
    except json.JSONDecodeError as error:
        raise BadCommandError(
            f"{name} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise BadCommandError(f"{name} is nested too deeply") from error
    except ValueError as error:
        # A whole number of thousands of digits is refused by Python itself.
        raise BadCommandError(f"{name} can't be read: {error}") from error
    return document

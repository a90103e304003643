"""The names of codes that pages translate: states, orders, priorities, command types. Pure.

In English a code is its own name. Codes that are words of commands stay as they are in every
language: roles, task types, policies of misfires, actions of the audit.
"""

from __future__ import annotations

from typing import Final

from api.marking import marked

RELEASES: Final = (marked("ONLINE"), marked("OFFLINE"), marked("online"), marked("offline"))
PRIORITIES: Final = (
    marked("highest"),
    marked("high"),
    marked("medium"),
    marked("low"),
    marked("lowest"),
)
ORDERS: Final = (marked("ascending"), marked("descending"))
EXECUTIONS: Final = (
    marked("PARALLEL"),
    marked("SERIAL_WAIT"),
    marked("SERIAL_DISCARD"),
    marked("SERIAL_PRIORITY"),
)
COMMANDS: Final = (
    marked("START_PROCESS"),
    marked("START_CURRENT_TASK_PROCESS"),
    marked("RECOVER_TOLERANCE_FAULT_PROCESS"),
    marked("RECOVER_SUSPENDED_PROCESS"),
    marked("START_FAILURE_TASK_PROCESS"),
    marked("COMPLEMENT_DATA"),
    marked("SCHEDULER"),
    marked("REPEAT_RUNNING"),
    marked("PAUSE"),
    marked("STOP"),
    marked("RECOVER_WAITTING_THREAD"),
    marked("RECOVER_SERIAL_WAIT"),
    marked("EXECUTE_TASK"),
)
SURROUNDINGS: Final = (
    *(marked("worker group"), marked("environment"), marked("tenant"), marked("time zone")),
    marked("only from tasks"),
)

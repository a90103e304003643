"""The ledger of fires in memory, with its indexes."""

from __future__ import annotations

from datetime import datetime

from tests.memory.rows import FireRecord, Rows


class FireRows(Rows[FireRecord]):
    """The ledger of fires, which grows long and is read by single fires."""

    def __init__(self) -> None:
        super().__init__("t_ds_schedule_fire", FireRecord)
        self._ids: dict[tuple[int, datetime], int] = {}
        self._ids_by_command: dict[int, int] = {}

    def put(self, row_id: int, row: FireRecord | None) -> None:
        """Write or remove a row."""
        old = self.get(row_id)
        if old is not None:
            self._ids.pop((old.schedule_id, old.fire_time), None)
            self._ids_by_command.pop(old.command_id, None)
        super().put(row_id, row)
        if row is not None:
            self._ids[row.schedule_id, row.fire_time] = row_id
            if row.command_id:
                self._ids_by_command[row.command_id] = row_id

    def of(self, schedule_id: int, fire_time: datetime) -> FireRecord | None:
        """A fire of a schedule, if it is in the ledger."""
        return self.get(self._ids.get((schedule_id, fire_time)))

    def of_command(self, command_id: int) -> FireRecord | None:
        """The fire whose command this is."""
        return self.get(self._ids_by_command.get(command_id))

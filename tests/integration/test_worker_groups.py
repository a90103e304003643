"""Worker groups by name, on real PostgreSQL."""

from __future__ import annotations

from common.store.connect import engine
from common.store.worker.worker_groups import ensure_worker_groups


def test_a_name_that_no_row_has_gets_one_and_keeps_it(migrated_url: str) -> None:
    made = engine(migrated_url)
    spark, etl = (ensure_worker_groups(made, [name]) for name in ("spark", "etl"))
    assert len(spark | etl) == 2
    assert ensure_worker_groups(made, ["etl", "spark"]) == spark | etl
    made.dispose()


def test_a_number_is_an_id_and_makes_no_group(migrated_url: str) -> None:
    made = engine(migrated_url)
    assert ensure_worker_groups(made, ["7"]) == {7}
    assert ensure_worker_groups(made, ["7", "first"]) == {7, 1}
    made.dispose()

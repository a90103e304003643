"""Environments as documents: the fields of `orcaflow environment … -o json`."""

from __future__ import annotations

from operations.environments import Environment


def environment_row(environment: Environment) -> dict[str, object]:
    """An environment; `config` is null for whoever is no administrator, and masked for the rest."""
    view = environment.view
    return {
        "id": view.id,
        "code": view.code,
        "name": view.name,
        "description": view.description,
        "worker_groups": list(view.worker_groups),
        "config": environment.config,
        "create_time": view.create_time,
        "update_time": view.update_time,
    }


def environment_name(code: int, name: str | None) -> str | None:
    """The name of the environment of a row, or the code of one that is gone; None for none."""
    return None if code <= 0 and name is None else name or str(code)

"""The owners of users' resources that a task names."""

from __future__ import annotations

import json

import pytest

from common.model.user_resources import owner_of, owners_in

SECRET = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("value", "owners"),
    [
        (f"users/4-{SECRET}/lib/main.py", {4}),
        (f"users//4-{SECRET}/main.py", {4}),
        (f"/srv/orcaflow/resources/users/4-{SECRET}/main.py", {4}),
        (f"cat users/4-{SECRET}/a users/5-{SECRET}/b", {4, 5}),
        # The folders of former versions.
        ("users/4/main.py", {4}),
        ("/srv/orcaflow/resources/users/4/main.py", {4}),
        # Other texts.
        ("curl https://example.org/api/users/4/items", set()),
        (f"other-users/4-{SECRET}/main.py", set()),
        (f"users/4-{SECRET[1:]}/main.py", set()),
        ("users/${id}/main.py", set()),
    ],
)
def test_the_owners_of_the_named_folders_are_found(value: str, owners: set[int]) -> None:
    assert owners_in([None, json.dumps({"res": value}, ensure_ascii=False)]) == owners


def test_the_owner_of_a_folder_is_in_its_name() -> None:
    assert [owner_of(each) for each in (f"4-{SECRET}", "4", "x", f"4-{SECRET}0")] == [
        4,
        4,
        None,
        None,
    ]

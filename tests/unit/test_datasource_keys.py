"""Passwords of data sources are encrypted by a key file that hosts share."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.datasource_keys import DatasourceKeyError, DatasourceKeys, is_sealed

FORM = json.dumps({"address": "jdbc:postgresql://db:5432", "user": "me", "password": "hush hush"})
URL = json.dumps({"url": "mysql+pymysql://me@corp:h%40sh@db:3306/shop?charset=utf8mb4"})


@pytest.fixture
def keys(tmp_path: Path) -> DatasourceKeys:
    keys = DatasourceKeys(tmp_path / "home" / "datasource.key")
    keys.make()
    return keys


DB2 = json.dumps({"url": "ibm_db_sa://me:hush@db:50000/SHOP"})


@pytest.mark.parametrize("params", [FORM, URL, DB2])
def test_a_password_is_not_in_the_row_and_comes_back(keys: DatasourceKeys, params: str) -> None:
    sealed = keys.sealed(params)
    assert is_sealed(sealed)
    assert not is_sealed(params)
    assert "hush" not in sealed
    assert "h%40sh" not in sealed
    assert json.loads(keys.opened(sealed)) == json.loads(params)
    # Twice the same password is two texts, and what is encrypted stays as it is.
    assert keys.sealed(params) != sealed
    assert keys.sealed(sealed) == sealed


@pytest.mark.parametrize("params", ["{", "[]", '{"url": 7}', '{"url": "x://[", "user": "me"}'])
def test_rows_without_a_password_or_sense_stay_as_they_are(
    keys: DatasourceKeys, params: str
) -> None:
    assert keys.sealed(params) == params
    assert keys.opened(params) == params


def test_a_row_in_clear_needs_no_key(tmp_path: Path) -> None:
    assert DatasourceKeys(tmp_path / "none").opened(FORM) == FORM


def test_the_key_file_is_its_owner_s_alone_and_made_once(keys: DatasourceKeys) -> None:
    assert keys.path.stat().st_mode & 0o777 == 0o600
    before = keys.path.read_text()
    keys.make()
    assert keys.path.read_text() == before
    assert [each.name for each in keys.path.parent.iterdir()] == ["datasource.key"]


def test_a_new_key_encrypts_and_the_old_ones_still_decrypt(keys: DatasourceKeys) -> None:
    old = keys.sealed(FORM)
    keys.add()
    assert json.loads(keys.opened(old)) == json.loads(FORM)
    new = keys.sealed(old)
    assert new != old
    first = keys.path.read_text().split()[0]
    assert f"aes256gcm:{first}:" in new
    assert json.loads(keys.opened(new)) == json.loads(FORM)


def problem(keys: DatasourceKeys, params: str) -> str:
    with pytest.raises(DatasourceKeyError) as caught:
        keys.opened(params)
    assert "hush" not in str(caught.value)
    return str(caught.value)


def test_each_trouble_with_a_key_is_named_with_its_cure(keys: DatasourceKeys) -> None:
    sealed = keys.sealed(FORM)
    content = keys.path.read_text()

    keys.path.chmod(0o640)
    assert f"chmod 600 {keys.path}" in problem(keys, sealed)

    keys.path.chmod(0o600)
    keys.path.write_text("abc\n")
    assert "is damaged" in problem(keys, sealed)

    keys.path.unlink()
    assert "there is no key file" in problem(keys, sealed)
    assert "copy the file from the host where data sources are made" in problem(keys, sealed)

    keys.make()
    assert f"with the key {content.split()[0]}, which" in problem(keys, sealed)

    keys.path.write_text(content)
    document = json.loads(sealed)
    document["password"] = document["password"][:-6] + "AAAA=="
    assert "was changed in its row" in problem(keys, json.dumps(document))


@pytest.mark.parametrize("module", ["operations.datasources", "worker.launcher"])
def test_the_library_is_not_imported_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

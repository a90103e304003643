"""Files of SPARK tasks: each key, each form of a name, and each process that reads the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from common.model.failures import FailureReason
from common.model.spark_paths import SparkPath, needs_spark, read_spark_path, scheme_of
from common.model.task_type import ValueFaultError
from common.spark_config import SparkConfig
from common.task_types import known_task_types
from tests.claims import a_claimed_task
from tests.unit.preparing import prepared
from tests.unit.spark_launches import prepared as prepared_session
from worker.launcher import seen_by_tasks
from worker.launching.base import NotLentError, TaskContext, TaskParameterError, TaskSettings
from worker.launching.patterns import matching_files
from worker.launching.resources import link_resource
from worker.launching.shipped import local_file
from worker.workspace import Account, attempt_folders, may_read_file

OPTIONS: Final = {
    "jars": "--jars",
    "files": "--files",
    "archives": "--archives",
    "pyFiles": "--py-files",
}
MODES: Final[dict[str, dict[str, str]]] = {
    "local": {"deployMode": "local"},
    "yarn client": {"deployMode": "client"},
    "yarn cluster": {"deployMode": "cluster"},
    "kubernetes cluster": {"deployMode": "cluster", "master": "k8s://https://k8s:6443"},
    "standalone client": {"deployMode": "client", "master": "spark://h:7077"},
    "standalone cluster": {"deployMode": "cluster", "master": "spark://h:7077"},
}
HERE: Final = ("local", "yarn client", "standalone client")
UPLOADS: Final = ("yarn cluster", "kubernetes cluster")
MANAGERS: Final = SparkConfig(
    yarn_urls="http://rm:8088", standalone_urls="http://h:8080", kubernetes_url="https://k8s:6443"
)
CASES: Final = [(key, mode) for key in (*OPTIONS, "mainJar") for mode in MODES]


def has_aliases(key: str, mode: str) -> bool:
    """Return True if Spark takes `#alias` in this key."""
    return key != "files" or mode.startswith("yarn")


class Desk:
    """A launcher of SPARK tasks. `/…/opt` has a.jar and b.jar; `/…/resources` has lib/c.jar."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.opt = home / "opt"
        for file in ("opt/a.jar", "opt/b.jar", "opt/x.txt", "resources/lib/c.jar", "job.jar"):
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).touch()
        submit = home / "spark/bin/spark-submit"
        submit.parent.mkdir(parents=True)
        submit.write_text("#!/bin/sh\n")
        submit.chmod(0o755)
        self.attempt = home / "tasks/1/2/3"

    def job(self, mode: str, params: dict[str, Any]) -> dict[str, Any]:
        common = {"mainJar": str(self.home / "job.jar"), "mainClass": "M", "programType": "JAVA"}
        settings = TaskSettings(
            spark_home=str(self.home / "spark"), environment=seen_by_tasks({}), spark=MANAGERS
        )
        made = prepared(self.home, "SPARK", {**common, **MODES[mode], **params}, settings=settings)
        assert made.job_file is not None
        found: dict[str, Any] = json.loads(made.job_file.read_text())
        return found

    def given(self, mode: str, key: str, name: str) -> str:
        """Return a key's value for spark-submit, or "refused: …" with the launcher's message."""
        params: dict[str, Any] = {key: name if key == "mainJar" else [name]}
        try:
            argv = self.job(mode, params)["argv"]
        except TaskParameterError as error:
            return f"refused: {error}"
        if key == "mainJar":
            return str(argv[-1])
        return str(argv[argv.index(OPTIONS[key]) + 1]) if OPTIONS[key] in argv else ""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(("key", "mode"), CASES)
def test_a_name_with_a_scheme_is_left_to_spark(desk: Desk, key: str, mode: str) -> None:
    names = ["hdfs:/u/dep.jar", "hdfs://h/u/dep.jar", "s3a://b/dep.jar", "https://h/dep.jar?x=*"]
    if key != "mainJar":
        names.append("hdfs:/u/*.jar")
    if key != "mainJar" and has_aliases(key, mode):
        names.append("hdfs:/u/dep.zip#dep")
    for name in names:
        assert desk.given(mode, key, name) == name


@pytest.mark.parametrize(("key", "mode"), CASES)
def test_a_local_uri_is_checked_where_its_driver_opens_it(desk: Desk, key: str, mode: str) -> None:
    is_opened = mode == "standalone cluster" and key == "mainJar"
    for name in (f"local:{desk.opt}/a.jar", f"local://{desk.opt}/a.jar"):
        assert desk.given(mode, key, name) == (f"{desk.opt}/a.jar" if is_opened else name)
    missing = "local:/opt/spark/no-such.jar"
    is_checked = mode in HERE and key in ("jars", "pyFiles", "mainJar")
    found = desk.given(mode, key, missing)
    if is_checked:
        assert found.startswith(f"refused: params.{key}")
        assert "there is no file /opt/spark/no-such.jar on this worker" in found
    else:
        assert found == (missing.removeprefix("local:") if is_opened else missing)


@pytest.mark.parametrize(("key", "mode"), CASES)
def test_a_path_and_a_file_uri_are_the_same(desk: Desk, key: str, mode: str) -> None:
    is_elsewhere = mode == "standalone cluster"
    for name in (f"{desk.opt}/a.jar", f"file:{desk.opt}/a.jar", f"file://{desk.opt}/a.jar"):
        expected = desk.opt if is_elsewhere else desk.attempt
        assert desk.given(mode, key, name) == f"{expected}/a.jar"
        (desk.attempt / "a.jar").unlink(missing_ok=True)
    for name in ("/no/such.jar", "file:/no/such.jar", "file:///no/such.jar"):
        found = desk.given(mode, key, name)
        if is_elsewhere:
            assert found == "/no/such.jar"
            continue
        assert "there is no file /no/such.jar on this worker" in found
        assert found.startswith(f"refused: params.{key}")
        assert ("write local:/no/such.jar" in found) is (mode in UPLOADS)


@pytest.mark.parametrize(("key", "mode"), [case for case in CASES if case[0] in OPTIONS])
def test_a_pattern_gives_the_files_that_it_matches(desk: Desk, key: str, mode: str) -> None:
    folder = desk.opt if mode == "standalone cluster" else desk.attempt
    for name in (f"{desk.opt}/*.jar", f"file:{desk.opt}/[ab].jar", f"{desk.home}/o?t/*.jar"):
        assert desk.given(mode, key, name) == f"{folder}/a.jar,{folder}/b.jar"
    # A relative pattern matches resources, which are linked into the folder of the attempt.
    assert desk.given(mode, key, "lib/*.jar") == f"{desk.attempt}/c.jar"
    if has_aliases(key, mode):
        assert desk.given(mode, key, f"{desk.opt}/x.*#y") == f"{folder}/x.txt#y"
    for name, said in (
        (f"{desk.opt}/*.zip", "no file on this worker matches"),
        (f"{desk.opt}/*.jar#x", "'x'"),
        ("../*.jar", "may not lead out of the resources"),
    ):
        found = desk.given(mode, key, name)
        assert found.startswith(f"refused: params.{key}[0]: ")
        assert said in found


@pytest.mark.parametrize("mode", [each for each in MODES if not each.startswith("yarn")])
def test_a_file_gets_its_alias_where_spark_itself_refuses_aliases(desk: Desk, mode: str) -> None:
    """Apart from YARN, Spark fails by a file with an alias: its URI has a fragment."""
    path, uri = desk.given(mode, "files", f"{desk.opt}/x.*#y"), "hdfs:/u/x.txt#y"
    if mode == "standalone cluster":
        assert path.startswith("refused: params.files[0]: ")
    else:
        assert path == f"file://{desk.attempt}/y"
        assert (desk.attempt / "y").resolve() == (desk.opt / "x.txt").resolve()
        job = desk.job(mode, {"files": [f"file:{desk.opt}/x.txt#y"]})
        assert f"{desk.attempt}/y" in job["resources"]
        with pytest.raises(TaskParameterError, match="another file has the name y already"):
            desk.job(mode, {"files": [f"{desk.opt}/x.txt#y", f"{desk.opt}/a.jar#y"]})
    assert "give the file itself the name 'y'" in desk.given(mode, "files", uri)
    for alias in ("", "..", "a/b"):
        assert "needs the name of a file" in desk.given(mode, "files", f"{desk.opt}/x.txt#{alias}")


@pytest.mark.parametrize("mode", MODES)
def test_the_program_is_one_file(desk: Desk, mode: str) -> None:
    assert "is a pattern" in desk.given(mode, "mainJar", f"{desk.opt}/*.jar")


def test_files_in_others_follow_the_same_rule(desk: Desk) -> None:
    others = (
        f"--jars {desk.opt}/*.jar,local:/opt/x.jar --files file:/etc/no-such --archives hdfs:/a.zip"
    )
    argv = desk.job("standalone cluster", {"others": others})["argv"]
    assert argv[argv.index("--jars") : argv.index("--jars") + 6] == [
        *("--jars", f"{desk.opt}/a.jar,{desk.opt}/b.jar,local:/opt/x.jar"),
        *("--files", "/etc/no-such", "--archives", "hdfs:/a.zip"),
    ]
    with pytest.raises(TaskParameterError, match="there is no file /etc/no-such on this worker"):
        desk.job("yarn cluster", {"others": others.replace("local:/opt/x.jar", "hdfs:/x.jar")})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", ["jars", "mainJar"])
def test_a_file_with_a_digest_is_checked_in_each_mode(desk: Desk, key: str, mode: str) -> None:
    changed, gone = f"{desk.opt}/a.jar", "/no/such.jar"
    for name in (changed, f"{desk.opt}/[a].jar", gone)[:: 1 if key == "jars" else 2]:
        params = {key: name, "digests": {changed: "0" * 64, gone: "0" * 64}}
        with pytest.raises(TaskParameterError, match=rf"params\.{key}"):
            desk.job(mode, params)


def test_only_files_of_the_worker_are_listed_with_checksums(desk: Desk) -> None:
    jars = [f"{desk.opt}/*.jar", "hdfs:/u/c.jar", f"local:{desk.opt}/a.jar"]
    job = desk.job("yarn cluster", {"jars": jars})
    assert job["resources"] == [f"{desk.attempt}/{name}" for name in ("job.jar", "a.jar", "b.jar")]
    job = desk.job("standalone cluster", {"jars": ["/elsewhere/c.jar"]})
    assert job["resources"] == []


NAMES: Final = (
    *("a.jar", "/x/a.jar", "file:/x/a.jar", "file:///x/a.jar", "local:/x/a.jar", "hdfs:/x/a.jar"),
    *("s3a://b/a.jar", "/x/*.jar", "file:/x/*.jar", "hdfs:/x/*.jar", "file://host/x/a.jar"),
    *("local://host/x/a.jar", "file://", "a:b.jar", "/x/a.jar#b", "hdfs:/x/a.jar#b", "/x/a#b/c"),
)


@pytest.mark.parametrize(("key", "mode"), CASES)
def test_lint_and_launcher_agree_about_the_form(desk: Desk, key: str, mode: str) -> None:
    spec = known_task_types()["SPARK"]
    common = {"mainJar": "hdfs:/j.jar", "mainClass": "M", "programType": "JAVA", **MODES[mode]}
    for name in NAMES:
        found = [*spec.faults_in({**common, key: name})]
        launched = desk.given(mode, key, name)
        is_place = any(
            said in launched for said in ("there is no file", "no file on this worker matches")
        )
        assert bool(found) == (launched.startswith("refused") and not is_place), name


def test_a_session_gets_paths_and_patterns_and_no_uri(tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "resources" / name).touch()
    params = {"profile": "connect", "pyFiles": f"file:{tmp_path}/resources/a.py,[b-c].py"}
    made = prepared_session(tmp_path, params)
    assert made.job_file is not None
    job = json.loads(made.job_file.read_text())
    assert job["py_files"] == [f"{made.directory}/a.py", f"{made.directory}/b.py"]
    assert made.argv[5] == "task"
    local = {"pyFiles": f"local:{tmp_path}/resources/a.py", "profile": "default"}
    with pytest.raises(TaskParameterError, match="the remote file local:"):
        prepared_session(tmp_path / "other", local)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("/x/a b.jar", SparkPath(scheme="", path="/x/a b.jar")),
        ("file:/x/a%20b.jar", SparkPath(scheme="file", path="/x/a b.jar")),
        ("FILE:///x", SparkPath(scheme="file", path="/x")),
        ("local:///x", SparkPath(scheme="local", path="/x")),
        ("hdfs:/x", SparkPath(scheme="hdfs", path="")),
        ("data:2026.csv", SparkPath(scheme="", path="data:2026.csv")),
    ],
)
def test_a_name_is_read(name: str, found: SparkPath) -> None:
    assert read_spark_path(name) == found
    assert scheme_of(name) == found.scheme
    assert needs_spark(name) is (found.scheme not in ("", "file"))


def test_a_file_of_another_host_is_refused() -> None:
    with pytest.raises(ValueFaultError, match="names the host 'h'; write file:/path"):
        read_spark_path("file://h/x")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Yield a folder that every account may list, because the folders of pytest are private."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


def test_a_pattern_shows_an_account_only_what_it_may_list(
    public_folder: Path,
) -> None:
    for folder, mode in (("open", 0o755), ("named", 0o711), ("shut", 0o700)):
        (public_folder / folder).mkdir()
        (public_folder / folder / "a.jar").touch()
        (public_folder / folder).chmod(mode)
    nobody = Account(name="nobody", uid=65534, gid=65534, groups=(65534,), home="/")
    found = matching_files(public_folder / "*/*.jar", nobody, limit=9)
    exact = matching_files(public_folder / "*/a.jar", nobody, limit=9)
    every = matching_files(public_folder / "*/*.jar", None, limit=9)
    assert found == [public_folder / "open/a.jar"]
    assert exact == [public_folder / "named/a.jar", public_folder / "open/a.jar"]
    assert len(every) == 3
    assert len(matching_files(public_folder / "*/*.jar", None, limit=2)) == 2


def a_context(home: Path, account: Account) -> TaskContext:
    """Return the context of an attempt of this account, with a digest of the file `theirs`."""
    return TaskContext(
        task=replace(
            a_claimed_task(attempt_folders(home / "tasks").paths(1, 2, 3)), execute_path=str(home)
        ),
        params={"digests": {"theirs": "0" * 64}},
        parameters={},
        types={},
        local=(),
        moment=datetime(2026, 1, 2, tzinfo=UTC),
        zone=ZoneInfo("UTC"),
        resources=home,
        account=account,
        settings=TaskSettings(environment={}),
    )


def test_a_file_that_an_account_may_not_read_is_answered_as_a_missing_one(
    public_folder: Path,
) -> None:
    nobody = Account(name="nobody", uid=65534, gid=65534, groups=(65534,), home="/")
    files = {
        "shut/theirs.jar": 0o644,
        "open/theirs.jar": 0o600,
        "open/ours.jar": 0o644,
    }
    for name, mode in files.items():
        (public_folder / name).parent.mkdir(exist_ok=True)
        (public_folder / name).touch()
        (public_folder / name).chmod(mode)
    (public_folder / "open").chmod(0o755)
    (public_folder / "shut").chmod(0o700)
    links = {
        "to theirs.jar": "../shut/theirs.jar",
        "through theirs.jar": "../shut/../open/ours.jar",
        "to ours.jar": "../open/ours.jar",
        "to itself.jar": "to itself.jar",
    }
    for name, target in links.items():
        (public_folder / "open" / name).symlink_to(target)
    readable = {
        each.name
        for each in [*(public_folder / "open").iterdir(), public_folder / "shut/theirs.jar"]
        if may_read_file(nobody, each)
    }
    assert readable == {"ours.jar", "to ours.jar"}
    context = a_context(public_folder, nobody)
    told = set()
    for name in ("shut/theirs.jar", "open/theirs.jar", "shut/none.jar", "open/none.jar"):
        path = str(public_folder / name)
        for find in (link_resource, TaskContext.file):
            with pytest.raises(TaskParameterError) as caught:
                find(context, "jars", path)
            told.add(str(caught.value).replace(path, "F"))
    assert told == {
        "params.jars: there is no file F on this worker that the account nobody may read"
    }
    with pytest.raises(TaskParameterError, match="not a regular file"):
        context.check_digest("jars", "theirs", public_folder / "open/theirs.jar")


def test_a_file_of_a_user_is_a_copy_for_a_tenant(public_folder: Path) -> None:
    account = Account(name="nobody", uid=65534, gid=65534, groups=(65534,), home="/")
    users = public_folder / "users"
    name = f"3-{'ed39' * 8}"
    folder = users / name / "lib"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text("pass")
    (folder / "other.jar").write_text("jar")
    (folder / "link.py").symlink_to("/etc/passwd")
    users.chmod(0o700)
    attempt = public_folder / "attempt"
    attempt.mkdir()
    context = a_context(public_folder, account)
    task = replace(context.task, execute_path=str(attempt), lenders=frozenset({3}))
    context = replace(context, task=task)
    copies = [
        Path(local_file(context, "mainJar", f"users/{name}/lib/main.py")),
        link_resource(context, "resourceList[0]", f"users/{name}/lib/other.jar"),
        context.file("file", str(folder / "main.py")),
    ]
    assert [each.read_text() for each in copies] == ["pass", "jar", "pass"]
    for each in copies:
        # Spark shows the real path of a program.
        assert each.resolve().is_relative_to(attempt)
        assert each.stat().st_uid == account.uid
    assert sorted(each.name for each in copies[-1].parent.iterdir()) == ["main.py", "other.jar"]
    for path in ("lib/link.py", "lib", ""):
        with pytest.raises(TaskParameterError, match="there is no file"):
            link_resource(context, "resourceList[0]", f"users/{name}/{path}")


def test_x108_a_file_of_a_user_without_a_role_in_the_project_is_not_copied(
    public_folder: Path,
) -> None:
    account = Account(name="nobody", uid=65534, gid=65534, groups=(65534,), home="/")
    users = public_folder / "users"
    for folder in (f"3-{'ed39' * 8}", "3", "x"):
        (users / folder).mkdir(parents=True)
        (users / folder / "main.py").write_text("pass")
    users.chmod(0o700)
    (public_folder / "way").symlink_to(users)
    context = a_context(public_folder, account)
    attempt = public_folder / "attempt"
    attempt.mkdir()
    task = replace(context.task, execute_path=str(attempt), lenders=frozenset({4}))
    context = replace(context, task=task)
    # The answer does not show whether the file exists.
    for name in ("main.py", "missing.py"):
        for path in (f"users/3-{'ed39' * 8}/{name}", f"users/3/{name}", f"way/3/{name}"):
            for take in (
                partial(link_resource, context, "resourceList[0]", path),
                partial(context.file, "file", str(public_folder / path)),
                partial(local_file, context, "mainJar", path),
            ):
                with pytest.raises(NotLentError, match="user 3 does not have a role") as caught:
                    take()
                assert caught.value.failure is FailureReason.NOT_GRANTED
    with pytest.raises(NotLentError, match="does not belong to a user"):
        link_resource(context, "resourceList[0]", "users/x/main.py")

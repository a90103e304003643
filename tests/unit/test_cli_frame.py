"""The command line as a whole: quick to start, clear in its errors, right in its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from common.process_identity import process_start_time
from operations.errors import UsageError
from orcaflow.cli.app import app, main
from orcaflow.cli.loading import RootGroup
from orcaflow.cli.usage import translate_usage_errors

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "alembic",
    "argon2",
    "croniter",
    "cryptography",
    "fastapi",
    "httpx",
    "kazoo",
    "networkx",
    "prometheus_client",
    "psutil",
    "psycopg2",
    "pydantic",
    "pyspark",
    "rich",
    "sqlalchemy",
    "tenacity",
}

NOT_FOR_LISTS = {
    *("common.business_dates", "common.destinations", "common.model.connection_params"),
    *("common.model.streams.properties", "common.params", "common.sealing"),
    *("common.store.database_check", "html", "unicodedata"),
}
"""Modules of moderate size that a list of runs once imported without need."""
MOST_OF_OURS = 64
"""The number of our modules that a list of runs imports. Measure the start before you raise it."""

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command in a home of its own: exit code, standard output, standard error."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def imported_by(arguments: str, **environment: str) -> tuple[int, set[str]]:
    """The exit code of a command in a separate process, and the packages that it imported."""
    code, modules = modules_of(arguments, **environment)
    return code, {name.partition(".")[0] for name in modules}


def modules_of(arguments: str, **environment: str) -> tuple[int, set[str]]:
    """The exit code of a command in a separate process, and the modules that it imported."""
    program = (
        "import sys\nfrom orcaflow.cli.app import main\n"
        f"code = main({arguments.split()!r})\n"
        "sys.stderr.write('\\n' + ' '.join(sorted(sys.modules)))\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    return done.returncode, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_list_of_commands_says_of_each_what_the_command_says_itself(width: int) -> None:
    group = get_command(app)
    assert isinstance(group, RootGroup)
    texts = []
    for write in (RootGroup.format_commands, TyperGroup.format_commands):
        ctx = group.make_context(
            "orcaflow", ["version"], terminal_width=width, max_content_width=width
        )
        formatter = ctx.make_formatter()
        write(group, ctx, formatter)
        texts.append(formatter.getvalue())
    assert texts[0] == texts[1]


def test_the_list_of_commands_imports_none_of_them() -> None:
    program = (
        "import sys\nfrom orcaflow.cli.app import main\nmain(['--help'])\n"
        "found = [name for name in sys.modules if name.startswith('orcaflow.cli.commands.')]\n"
        "sys.exit(' '.join(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "version",
        "run --help",
        "server start --help",
        "instance why --help",
        "pool --help",
        "schedule preview --help",
        "definition lint examples/flights/flights.json",
        "definition schema",
        "config show",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(arguments: str) -> None:
    code, imported = imported_by(arguments)
    assert (code, imported & HEAVY) == (0, set())


def test_settings_other_than_the_defaults_import_what_validates_them_and_nothing_else() -> None:
    code, imported = imported_by("config show", ORCAFLOW_WORKER__PORT="1233")
    assert (code, imported & HEAVY) == (0, {"pydantic"})


@pytest.mark.parametrize("arguments", ["instance list", "task list", "run some"])
def test_a_command_imports_the_database_driver_the_settings_and_nothing_else_that_is_heavy(
    arguments: str,
) -> None:
    # Nothing listens there, so the command fails after its imports.
    code, imported = imported_by(arguments, ORCAFLOW_DATABASE__URL="postgresql://127.0.0.1:1/none")
    assert (code, imported & HEAVY) == (5, {"sqlalchemy", "psycopg2", "pydantic"})


def test_a_list_imports_no_more_of_our_modules_than_it_needs() -> None:
    # Start-up time is imports. A module that a list does not need is imported where it is used, or
    # the value that the list needs is moved out of it.
    code, imported = modules_of(
        "instance list", ORCAFLOW_DATABASE__URL="postgresql://127.0.0.1:1/none"
    )
    ours = {name for name in imported if name.startswith(("common.", "operations.", "orcaflow."))}
    assert (code, imported & NOT_FOR_LISTS) == (5, set())
    assert len(ours) <= MOST_OF_OURS, sorted(ours)


def test_a_list_makes_no_table_that_it_does_not_read() -> None:
    program = (
        "import sys, operations.instances\n"
        "place = 'common.store.tables.'\n"
        "sys.exit(' '.join(sorted(n.removeprefix(place) for n in sys.modules if n.startswith(place))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == "columns definitions projects runs\n"


def test_no_garbage_is_looked_for_while_a_command_starts_and_after_it() -> None:
    program = (
        "import gc, sys\n"
        "begun = []\n"
        "gc.callbacks.append(lambda phase, _: begun.append(phase))\n"
        "from orcaflow.__main__ import main\n"
        "begun.clear()\n"
        "sys.argv = ['orcaflow', 'config', 'show']\n"
        "code = main()\n"
        "print([code, begun, gc.get_freeze_count() > 10_000], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[0, [], True]\n"


def test_a_command_imports_no_other_group_of_commands() -> None:
    program = (
        "import sys\nfrom orcaflow.cli.app import main\nmain(['version'])\n"
        "sys.stderr.write(' '.join(n for n in sys.modules if n.startswith('orcaflow.cli.commands.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "orcaflow.cli.commands.version"


@pytest.mark.parametrize(
    "group",
    [
        "db",
        "definition",
        "run",
        "instance",
        "task",
        "schedule",
        "complement",
        "pool",
        "datasource",
        "server",
        "config",
        "doctor",
        "overview",
        "version",
    ],
)
def test_every_command_teaches_itself_with_an_example(cli: Cli, group: str) -> None:
    code, out, _ = cli(group, "--help")
    assert code == 0
    inner = [
        line.split()[0]
        for line in out.partition("Commands:")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    texts = [out] if not inner else [cli(group, name, "--help")[1] for name in inner]
    for text in texts:
        assert "Example" in text
        assert "orcaflow" in text.partition("Example")[2]


def test_an_unknown_option_is_a_usage_error(cli: Cli) -> None:
    assert cli("run", "x", "--nonsense")[0] == 2
    assert cli("nonsense")[0] == 2
    assert cli("run")[0] == 2
    assert cli("instance", "show", "first")[0] == 2


def test_the_version_is_that_of_the_project(cli: Cli) -> None:
    code, out, _ = cli("version", "-o", "json")
    assert code == 0
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{json.loads(out)["orcaflow"]}"' in project


def test_a_database_that_is_not_there_is_reported_with_the_cure(cli: Cli) -> None:
    code, out, err = cli("instance", "list")
    assert (code, out) == (5, "")
    assert "start standalone-server" in err
    assert "Traceback" not in err


def test_a_refused_connection_is_an_unreachable_service(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql+psycopg2://u:hush@127.0.0.1:1/x")
    code, _, err = cli("definition", "list")
    assert code == 5
    assert "127.0.0.1:1/x" in err
    assert "hush" not in err


def test_all_mistakes_of_the_configuration_are_reported_together(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_MASTER__PORT", "many")
    monkeypatch.setenv("ORCAFLOW_WORKER__SLOTTS", "1")
    code, _, err = cli("config", "show")
    assert code == 78
    assert "master.port" in err
    assert "worker.slotts" in err


def test_config_shows_where_a_value_came_from(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_MASTER__PORT", "5999")
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://u:hush@h/x")
    code, out, _ = cli("config", "show", "-o", "json")
    assert code == 0
    rows = {row["key"]: row for row in json.loads(out)}
    assert rows["master.port"]["value"] == "5999"
    assert rows["master.port"]["origin"] == "ORCAFLOW_MASTER__PORT"
    assert "hush" not in out


def test_config_get_prints_one_value_for_scripts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://u:hush@h:5432/x")
    assert cli("config", "get", "master.port") == (0, "5678\n", "")
    code, out, _ = cli("config", "get", "database.dsn")
    assert code == 0
    assert "password=hush" in out
    code, _, err = cli("config", "get", "master.prot")
    assert code == 3
    assert "did you mean master.port?" in err


def test_config_names_the_port_in_use_if_it_differs(cli: Cli, tmp_path: Path) -> None:
    pid = os.getpid()
    file = tmp_path / "home" / "run" / "api-server-40123.pid"
    file.parent.mkdir(parents=True)
    file.write_text(f"{pid}\n{process_start_time(pid)}\n")
    code, out, err = cli("config", "get", "api.port")
    assert (code, out) == (0, "12345\n")
    assert "api.port is 12345 in the settings; the api-server of this home runs at 40123" in err
    assert "orcaflow config get api.url" in err
    assert "the api-server of this home runs at 40123" in cli("config", "show")[2]
    assert cli("config", "get", "master.port")[2] == ""
    # A daemon at the configured port needs no note.
    file.rename(file.with_name("api-server-12345.pid"))
    assert cli("config", "get", "api.port") == (0, "12345\n", "")


def test_lint_needs_no_database_and_reports_all_mistakes(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"name": "x", "tasks": [{"name": "a", "type": "COBOL"}, {"type": "SHELL"}]}')
    code, _, err = cli("definition", "lint", str(path))
    assert code == 1
    assert "2 mistakes" in err
    assert "'COBOL' is unknown" in err


def test_no_daemon_of_an_empty_home_runs(cli: Cli) -> None:
    code, out, _ = cli("server", "status", "-o", "json")
    assert (code, json.loads(out)) == (3, [])
    code, out, _ = cli("server", "stop", "master-server")
    assert (code, out) == (0, "master-server was not running\n")


def test_a_stale_pid_file_does_not_mean_that_a_daemon_runs(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "home" / "run"
    run.mkdir(parents=True)
    # Process 1 runs, but was not started at that time.
    (run / "master-server-5678.pid").write_text("1\n123456789.0\n")
    code, out, _ = cli("server", "status", "-o", "json")
    assert code == 1
    assert [row["state"] for row in json.loads(out)] == ["dead"]
    assert cli("server", "stop", "master-server")[1] == "master-server was not running\n"


def test_options_that_do_not_fit_the_daemon_are_refused(cli: Cli) -> None:
    assert cli("server", "start", "master-server", "--groups", "a")[0] == 2
    assert cli("server", "start", "standalone-server", "--port", "5000")[0] == 2


def test_waiting_options_need_waiting(cli: Cli) -> None:
    assert cli("run", "x", "--timeout", "5s")[0] == 2
    assert cli("run", "x", "--wait", "--timeout", "soon")[0] == 2
    assert cli("run", "x", "--depend", "only")[0] == 2
    assert cli("run", "x", "--param", "novalue")[0] == 2
    assert cli("run", "x", "-p", "a=1", "-p", "a=2")[0] == 2


def an_app(error: UsageError) -> typer.Typer:
    """A command of a group, which only raises the error."""
    group = typer.Typer(rich_markup_mode=None)

    @group.command()
    def make(
        name: str,
        kind: Annotated[str, typer.Argument(metavar="KIND-OF-IT")] = "",
        from_: Annotated[str, typer.Option("-f", "--since")] = "",
    ) -> None:
        raise error

    @group.command()
    def other() -> None: ...

    app = typer.Typer(rich_markup_mode=None)
    app.add_typer(group, name="group")
    translate_usage_errors(app)
    return app


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("name", " for NAME"),
        ("kind", " for KIND-OF-IT"),
        ("from", " for --since"),
        ("start_nodes", " for --start-nodes"),
        (None, ""),
    ],
)
def test_a_usage_error_of_an_operation_names_the_option_that_gave_the_field(
    capsys: pytest.CaptureFixture[str], field: str | None, hint: str
) -> None:
    with pytest.raises(SystemExit) as end:
        an_app(UsageError(field, "is no good"))(args=["group", "make", "x"], prog_name="orcaflow")
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("Usage: orcaflow group make [OPTIONS] ")
    assert err.splitlines()[-1] == f"Error: Invalid value{hint}: is no good"

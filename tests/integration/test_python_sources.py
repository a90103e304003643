"""PYTHON tasks with data sources: the file of connections is masked, private and removed."""

from __future__ import annotations

import json
from pathlib import Path

from common.model.states import TaskState
from common.store.worker.ports import DataSource
from tests.integration.worker_host import Host, Signpost, a_daemon_that_dies
from worker.processes.attempt_processes import scan

SECRET = "hush-4711"
SOURCE = DataSource(
    id=7, name="dw", type=1, connection_params=f'{{"url": "mysql://ada:{SECRET}@db/dw"}}'
)
READS = (
    "from orcaflow.task import datasource\nprint('up', datasource('dw')['password'], flush=True)\n"
)


def test_a_script_reads_its_password_which_is_masked_and_removed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    script = f"{READS}import os\nprint(os.environ['ORCAFLOW_DATASOURCES'])\nraise SystemExit(3)"
    end = host.run(
        host.task(
            7,
            script,
            task_type="PYTHON",
            params={"datasources": [7]},
            datasource=SOURCE,
            datasources=(SOURCE,),
        )
    )
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 3)
    log = host.log(7)
    assert SECRET not in log
    assert f"up {'*' * len(SECRET)}\n" in log
    (file,) = [line for line in log.splitlines() if line.endswith(".json")]
    # The directory of a failed attempt is kept.
    assert Path(file).parent.is_dir()
    assert not Path(file).exists()
    host.supervisor.close()


def test_a_restarted_worker_masks_the_password_and_removes_the_file(tmp_path: Path) -> None:
    up, gate = Signpost(tmp_path / "up"), Signpost(tmp_path / "gate")
    script = (
        f"print('up', file=open({str(up.path)!r}, 'w'))\nopen({str(gate.path)!r}).readline()\n"
        f"{READS}raise SystemExit(3)"
    )
    body = (
        "from common.store.worker.ports import DataSource\n"
        f"source = DataSource(id=7, name='dw', type=1, connection_params={SOURCE.connection_params!r})\n"
        f"host.begin(host.task(7, {script!r}, task_type='PYTHON', params={{'datasources': [7]}},"
        " datasource=source, datasources=(source,)))\n"
        f"open({str(up.path)!r}).readline()\n"
    )
    a_daemon_that_dies(tmp_path, body)
    host = Host(tmp_path)
    (file,) = host.directory(7).glob("python_*.json")
    assert json.loads(file.read_text())["dw"]["password"] == SECRET
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    end = host.end_of(7)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 3)
    assert SECRET not in host.log(7)
    assert f"up {'*' * len(SECRET)}\n" in host.log(7)
    assert not file.exists()
    assert [each for each in scan() if each.execute_path == str(host.directory(7))] == []
    host.supervisor.close()
    up.close()
    gate.close()

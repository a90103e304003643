"""Tenants with Spark sessions on one worker: an attacker among them gets nothing but their own.

Each tenant has a warm server and a task at work. One of them then tries every way out that we know
of: from the task's process, from a UDF, and from the Java machine. It is told all names, paths,
ports and pids of the other one, as `ps` would tell them.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from common.clock import SystemClock
from common.spark_config import SparkConfig
from tests.integration.foreign_clients import CLIENT, World, a_program
from tests.integration.spark_accounts import AS_ROOT, a_python, accounts
from tests.integration.spark_host import (
    GOOD,
    PORT,
    Attempt,
    TenantHost,
    a_loop,
    a_profile,
    environ,
    listens_at,
    lives,
    page_token,
    parent,
    processes,
    until,
)
from tests.integration.tenant_privileges import none_but_groups, privileges
from worker.loops.port_guard_loop import PortGuardLoop
from worker.processes.marks import mark_of
from worker.spark.host import folders
from worker.spark.jvm import properties

pytestmark = [pytest.mark.slow, AS_ROOT]

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"

VICTIM = f"""
spark.sql("CREATE TABLE ledger AS SELECT 'the ledger' AS line")
spark.createDataFrame([("the cache",)], "line string").cache().count()
open("note", "w").write("the note")
{GOOD}
wait()
tell(spark.table("ledger").first()[0])
"""

ATTACKER = """
import signal, socket, urllib.request
from pathlib import Path
from pyspark.sql.functions import udf
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as Session

v = json.loads(open("victim.json").read())

def connect_with(token):
    given = f";token={token}" if token else ""
    builder = DefaultChannelBuilder(f"sc://localhost:{v['port']}/;user_id=orcaflow{given}")
    return Session.builder.channelBuilder(builder).create().sql("SELECT current_user()").first()[0]

def ask_host(address, *words):
    link = socket.socket(socket.AF_UNIX)
    link.connect(address)
    body = b"\\0".join(map(str.encode, words))
    socket.send_fds(link, [len(body).to_bytes(4, "big") + body], [0, 1, 2])
    link.settimeout(5)
    answer = link.recv(100).decode()
    if not answer or answer.startswith("error"):
        raise PermissionError(answer or "hung up")
    return answer

def page(path, form=None, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{v['ui']}{path}", form, headers)
    return urllib.request.urlopen(request, timeout=10).read().decode()

def read_memory(pid):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(int(open(f"/proc/{pid}/maps").readline().split("-")[0], 16))
        return memory.read(16).hex()

def in_udf(text):
    return spark.range(1).select(udf(lambda _: str(eval(text)), "string")("id")).first()[0]

def in_java(path):
    return spark.read.text(path).first()[0]

def plant(path):
    Path(path).write_text("planted")
    return "planted"

attempts = {
    "be root": lambda: os.setuid(0),
    "be the victim": lambda: os.setuid(v["uid"]),
    "be root in a UDF": lambda: in_udf("__import__('os').setuid(0)"),
    "shadow": lambda: open("/etc/shadow").read(),
    "shadow in a UDF": lambda: in_udf("open('/etc/shadow').read()"),
    "shadow in Java": lambda: in_java("file:///etc/shadow"),
    "password of the home": lambda: open(v["password"]).read(),
    "password of the home in a UDF": lambda: in_udf(f"open({v['password']!r}).read()"),
    "password of the home in Java": lambda: in_java(f"file://{v['password']}"),
    "password as a table": lambda: spark.sql(f"SELECT * FROM text.`{v['password']}`").first()[0],
    "write into the home": lambda: plant(v["home"] + "/planted"),
    "write into the home by Java": lambda: spark.range(1).write.parquet("file://" + v["home"] + "/planted"),
    "write beside the hosts": lambda: plant(v["hosts"] + "/account-0"),
    "the victim's folder": lambda: os.listdir(v["folder"]),
    "the victim's folder in Java": lambda: in_java(f"file://{v['folder']}/*/*"),
    "the server's settings": lambda: open(v["settings"]).read(),
    "the server's settings in a UDF": lambda: in_udf(f"open({v['settings']!r}).read()"),
    "the server's settings in Java": lambda: in_java("file://" + v["settings"]),
    "the victim's attempt": lambda: open(v["attempt"] + "/note").read(),
    "the victim's attempt in Java": lambda: in_java("file://" + v["attempt"] + "/note"),
    "the victim's tables": lambda: spark.read.parquet("file://" + v["ledger"]).first()[0],
    "the victim's tables in a UDF": lambda: in_udf(f"__import__('os').listdir({v['ledger']!r})"),
    "the victim's home": lambda: os.listdir(v["home_of"]),
    "the victim's catalog": lambda: spark.table("ledger").first()[0],
    "the server's environment": lambda: open(f"/proc/{v['server']}/environ").read(),
    "the server's environment in a UDF": lambda: in_udf(f"open('/proc/{v['server']}/environ').read()"),
    "the server's memory": lambda: read_memory(v["server"]),
    "the host's memory": lambda: read_memory(v["host"]),
    "the task's memory": lambda: read_memory(v["task"]),
    "the task's environment": lambda: open(f"/proc/{v['task']}/environ").read(),
    "the task's files": lambda: os.listdir(f"/proc/{v['task']}/fd"),
    "kill the server": lambda: os.kill(v["server"], signal.SIGKILL),
    "kill the task": lambda: os.kill(v["task"], signal.SIGKILL),
    "kill the host": lambda: os.kill(v["host"], signal.SIGKILL),
    "kill the server in a UDF": lambda: in_udf(f"__import__('os').kill({v['server']}, 9)"),
    "ask the victim's host": lambda: ask_host(v["socket"], "task", "/", "2", "default", "/job"),
    "ask the victim's host in a UDF": lambda: in_udf(
        f"__import__('socket').socket(__import__('socket').AF_UNIX).connect({v['socket']!r})"
    ),
    "a Python of the victim's session": lambda: ask_host(
        v["own_socket"], "python", "/", "3", "/x/" + v["session"], "-m", "pyspark.daemon"
    ),
    "a session without a token": lambda: connect_with(""),
    "a session with the own token": lambda: connect_with(v["own_token"]),
    "a session with another token": lambda: connect_with("x" * 32),
    "the victim's pages": lambda: page("/SQL/"),
    "the victim's jobs": lambda: page("/api/v1/applications"),
    "the victim's threads": lambda: page("/threadDump/"),
    "a kill of the victim's job": lambda: page("/jobs/job/kill/", b"id=0"),
    "the victim's pages with the own token": lambda: page("/jobs/", token=v["own_page_token"]),
    "the victim's pages with a token of no key": lambda: page(
        "/jobs/", token="eyJhbGciOiJub25lIn0.eyJzdWIiOiJvcmNhZmxvdyJ9."
    ),
}

def outcome(attempt):
    try:
        return f"got {attempt()!r}"[:200]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:2000]

for name, attempt in attempts.items():
    tell(name, outcome(attempt))
"""

ESCAPES = re.findall(r'^    "([^"]+)": lambda', ATTACKER, re.MULTILINE)

REFUSED = re.compile(
    r"PermissionError|Permission denied|AccessControlException|Operation not permitted"
    r"|HTTP Error 40[13]|UNAUTHENTICATED|TABLE_OR_VIEW_NOT_FOUND|hung up|SERVER_LOST"
    r"|ConnectionResetError|Unable to infer schema|PATH_NOT_FOUND|FILE_NOT_EXIST|Mkdirs failed"
)
"""The words of the kernel, of Java, of Spark and of a host for what somebody may not have.

To Spark a file that its account may not open is a file that does not exist.
"""

IDENTITY = """
from pyspark.sql.functions import udf
tell(os.getuid(), os.getgid(), sorted(os.getgroups()))
whoami = udf(lambda _: __import__("subprocess").check_output(["id", "-u"], text=True), "string")
tell(spark.range(1).select(whoami("id")).first()[0].strip())
tell(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'user.name')").first()[0])
tell(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'user.home')").first()[0])
"""


class Tenants:
    """Two tenants on one worker: Alice, who has secrets, and Mallory, who wants them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.password = home / "postgres.password"
        self.password.touch(mode=0o600)
        self.password.write_text("the password\n")
        (home / "data").mkdir()
        alice, mallory = accounts(home)
        python = a_python(home, mallory)
        config = SparkConfig(profiles={"default": a_profile()}, prewarm="default")
        self.loop = a_loop(home, config, for_tenants=True, python=python)
        self.alice = TenantHost(home, self.loop, alice, python)
        self.mallory = TenantHost(home, self.loop, mallory, python)
        self.victim: Attempt = self.alice.start(VICTIM)
        assert self.mallory.works(), "a tenant's own task"
        self.victim.ready()

    def token_of(self, host: TenantHost) -> str:
        (server,) = host.servers()
        pairs = environ(server).decode("utf-8", "replace").split("\0")
        return next(each.removeprefix(f"{TOKEN}=") for each in pairs if each.startswith(TOKEN))

    def settings_of(self, host: TenantHost) -> dict[str, str]:
        (settings,) = host.directory.glob("server-*/server.properties")
        return properties.read(settings.read_text())

    def known_of_alice(self) -> dict[str, Any]:
        """All that is no secret, or not worth being one."""
        (server,) = self.alice.servers()
        (settings,) = self.alice.directory.glob("server-*/server.properties")
        conf = properties.read(settings.read_text())
        account = self.alice.account
        (task,) = [pid for pid in self.victim.pids if parent(pid) == self.alice.pid]
        (link,) = [each for each in settings.parent.iterdir() if each.is_symlink()]
        return {
            "uid": account.uid,
            "home": str(self.home),
            "home_of": account.home,
            "password": str(self.password),
            "hosts": str(folders.own_folder(self.home, PORT)),
            "folder": str(self.alice.directory),
            "settings": str(settings),
            "attempt": str(self.victim.folder),
            "ledger": str(self.home / "data/tenants" / account.name / "spark-warehouse/ledger"),
            "server": server,
            "host": self.alice.pid,
            "task": task,
            "port": int(conf["spark.connect.grpc.binding.port"]),
            "ui": conf["spark.ui.port"],
            "own_page_token": page_token(self.settings_of(self.mallory)),
            "session": link.name,
            "socket": self.alice.address,
            "own_socket": self.mallory.address,
            "own_token": self.token_of(self.mallory),
        }

    def close(self) -> None:
        for each in (self.alice, self.mallory):
            each.kill_proxies()
        hosts = [self.alice.pid, self.mallory.pid]
        self.loop.stop_host()
        until(lambda: not any(lives(pid) for pid in hosts))
        self.loop.close()


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    # The folders of `tmp_path` are closed to other accounts.
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as home:
        Path(home).chmod(0o755)
        made = Tenants(Path(home))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def outcomes(tenants: Tenants) -> Mapping[str, str]:
    """The outcome of each escape."""
    known = json.dumps(tenants.known_of_alice())
    script = ATTACKER.replace('open("victim.json").read()', repr(known))
    code, attempt = tenants.mallory.run(script)
    assert code == 0, attempt.output
    told = attempt.values
    return dict(zip(told[::2], told[1::2], strict=True))


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_tenant_reaches_nothing_of_another_or_of_the_worker(
    outcomes: Mapping[str, str], escape: str
) -> None:
    assert not outcomes[escape].startswith("got "), outcomes[escape]
    assert REFUSED.search(outcomes[escape]), outcomes[escape]


def test_task_udf_and_server_are_the_tenants_own(tenants: Tenants) -> None:
    account = tenants.mallory.account
    code, attempt = tenants.mallory.run(IDENTITY)
    assert code == 0, attempt.output
    uid, gid, groups, in_udf, in_java, home = attempt.values
    assert (uid, gid, groups) == (account.uid, account.gid, sorted(account.groups))
    assert (in_udf, in_java) == (str(account.uid), account.name)
    for host in (tenants.alice, tenants.mallory):
        members = [host.pid, *host.family()]
        assert set().union(*map(_uids, members)) == {host.account.uid}
    assert home != "/root"


def test_no_process_of_a_tenants_host_has_privileges_x49(tenants: Tenants) -> None:
    for host in (tenants.alice, tenants.mallory):
        members = [host.pid, *host.family()]
        assert len(members) > 1
        for pid in members:
            found = privileges(Path(f"/proc/{pid}/status").read_text())
            assert found == none_but_groups(host.account)


def test_no_process_of_a_tenant_holds_the_token_of_another(tenants: Tenants) -> None:
    secret = tenants.token_of(tenants.alice).encode()
    holders = [pid for pid in processes() if _uids(pid) == {tenants.alice.account.uid}]
    assert any(_holds(pid, secret) for pid in holders)
    others = [tenants.mallory.pid, *tenants.mallory.family()]
    assert not any(_holds(pid, secret) for pid in others)


def test_a_server_answers_this_computer_alone_and_nobody_without_its_secret(
    tenants: Tenants,
) -> None:
    (server,) = tenants.alice.servers()
    conf = tenants.settings_of(tenants.alice)
    doors = listens_at(server)
    assert {address for address, _ in doors} == {"127.0.0.1"}
    others = {int(conf["spark.connect.grpc.binding.port"]), int(conf["spark.ui.port"])}
    spoken = [a_call(port) for _, port in doors if port not in others]
    # Spark's own: calls and blocks.
    assert sum(b"Sasl" in each for each in spoken) == 2, spoken


def a_call(port: int) -> bytes:
    """The answer of a port to a call of Spark's own protocol without any secret."""
    body = b"let me in"
    head = b"\x03" + (7).to_bytes(8, "big") + len(body).to_bytes(4, "big")
    frame = (8 + len(head) + len(body)).to_bytes(8, "big") + head + body
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(frame)
        try:
            return link.recv(4096)
        except (TimeoutError, ConnectionResetError):
            return b""


def test_x114_a_program_at_any_port_of_another_tenants_server_is_ended(tenants: Tenants) -> None:
    (server,) = tenants.alice.servers()
    uids = (tenants.alice.account.uid, tenants.mallory.account.uid)
    guard = PortGuardLoop(tenants.home, World(accounts=uids), tenants.loop, clock=SystemClock())
    for _, port in listens_at(server):
        left = mark_of("/an/attempt/that/has/ended")
        with a_program(CLIENT, uids[1], port=port, mark=left) as (client, said):
            assert said == "connected"
            guard.run_once()
            assert client.wait() == -signal.SIGKILL
    assert tenants.mallory.works(), "a task of a tenant whose program was ended"


def test_tenants_share_no_folder_of_their_servers_and_tables(tenants: Tenants) -> None:
    account = tenants.alice.account
    for folder in (tenants.alice.directory, tenants.home / "data/tenants" / account.name):
        about = folder.stat()
        assert (about.st_uid, about.st_mode & 0o777) == (account.uid, 0o700)
    own = folders.own_folder(tenants.home, PORT).stat()
    assert (own.st_uid, own.st_mode & 0o777) == (0, 0o711)


def test_temporary_files_of_a_server_are_below_its_own_directory(tenants: Tenants) -> None:
    (server,) = tenants.alice.servers()
    (settings,) = tenants.alice.directory.glob("server-*/server.properties")
    scratch = settings.parent / "tmp"
    libraries = re.findall(r"/\S+\.so", Path(f"/proc/{server}/maps").read_text())
    unpacked = {each for each in libraries if re.search("lz4|netty|snappy|zstd", each)}
    assert unpacked
    assert {str(Path(each).parent) for each in unpacked} == {str(scratch)}
    assert list(scratch.glob("artifacts-*"))
    opened = [each.resolve() for each in Path(f"/proc/{server}/fd").iterdir()]
    blocks = [each for each in opened if "blockmgr" in str(each)]
    assert all(each.is_relative_to(settings.parent) for each in blocks)


def test_a_profile_to_be_warm_ahead_starts_no_server_of_roots_for_tenants(tenants: Tenants) -> None:
    assert not Path(tenants.loop.address).exists()


# It comes after all that want the victim at work.
def test_a_tenants_task_is_found_by_its_marker_and_goes_on_unharmed(
    tenants: Tenants, outcomes: Mapping[str, str]
) -> None:
    assert [pid for pid in tenants.victim.pids if parent(pid) == tenants.alice.pid]
    tenants.victim.go_on()
    assert (tenants.victim.end(), tenants.victim.values) == (0, [55, "the ledger"])


def test_a_tenants_task_is_killed_as_any_other(tenants: Tenants) -> None:
    attempt = tenants.mallory.start(
        'tell(1)\nspark.range(0, 10**15, 1, 4).selectExpr("sum(id % 7)").collect()'
    )
    attempt.told("= [1]")
    attempt.process.terminate()
    assert attempt.end() == 143
    until(lambda: tenants.mallory.pythons() == [])


def _uids(pid: int) -> set[int]:
    """Real, effective, saved and of the file system; none of a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return set()
    return {int(each) for each in text.partition("\nUid:")[2].partition("\n")[0].split()}


def _holds(pid: int, secret: bytes) -> bool:
    """True if the process has these bytes in its memory, or in its environment."""
    with suppress(FileNotFoundError, ProcessLookupError):  # It has just ended.
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        with Path(f"/proc/{pid}/mem").open("rb") as memory:
            return any(secret in _read(memory, span) for span in filter(None, map(_span, maps)))
    return False


def _span(line: str) -> tuple[int, int] | None:
    """The first byte and the size of what can be written; a Java heap is mostly not there."""
    where, access, *_ = line.split()
    first, last = (int(each, 16) for each in where.split("-"))
    return (first, last - first) if access.startswith("rw") and last - first < 64 << 20 else None


def _read(memory: IO[bytes], span: tuple[int, int]) -> bytes:
    with suppress(OSError, OverflowError, ValueError):
        memory.seek(span[0])
        return memory.read(span[1])
    return b""

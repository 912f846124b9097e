"""The private servers that other tests use: they restart in the same state, and leave nothing behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fpga_pool.model.exceptions import ServiceUnavailable
from support import environment
from support.servers import MariaDB, PostgreSQL, RabbitMQ
from support.servers.process import children
from support.waiting import wait_until

KINDS = [RabbitMQ, MariaDB, PostgreSQL]

#: Starts a server, prints its port, then waits to be killed.
OWNER = """
import sys
from pathlib import Path
from support.servers import MariaDB, PostgreSQL, RabbitMQ

kind = {kind.name: kind for kind in (MariaDB, PostgreSQL, RabbitMQ)}[sys.argv[1]]
with kind(Path(sys.argv[2])) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    if problem := request.param.missing():
        pytest.skip(problem)
    return request.param


@pytest.fixture
def directory(servers_directory, kind, request):
    return servers_directory / f"{request.node.originalname}-{kind.name}"


def listens(port, address="127.0.0.1"):
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((address, port)) == 0


def test_it_listens_where_told_stalls_and_comes_back_as_it_was(kind, directory):
    addresses = ("127.0.0.1", "127.0.0.2")
    server = kind(directory, addresses)
    with server:
        for address in (*addresses, "127.0.0.3"):
            assert listens(server.port, address) is (address in addresses)
        stalls(server)
        url = server.url
        for end in (server.stop, server.kill):
            end()
            assert not server.running
            assert not listens(server.port)
            server.start()
            assert listens(server.port)
            assert server.url == url
    assert not listens(server.port)


def stalls(server):
    """Assert that a paused server accepts connections and does not respond."""
    server.pause()
    assert server.running
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.settimeout(0.2)
        client.sendall(b"AMQP\x00\x00\x09\x01")
        with pytest.raises(TimeoutError):
            client.recv(1)
    server.resume()
    wait_until(server._answers, "it answers again")


def test_it_comes_back_after_a_crash_that_its_children_outlive_by_a_moment(kind, directory):
    with kind(directory) as server:
        living = children(server._process.pid)
        send(signal.SIGSTOP, living)
        late = threading.Timer(0.5, send, [signal.SIGCONT, living])
        late.start()
        server.kill()
        server.start()
        assert listens(server.port)
        late.join()


def send(sign, processes):
    for each in processes:
        with contextlib.suppress(ProcessLookupError):  # a database session may end at any time
            os.kill(each, sign)


def test_the_command_keeps_servers_until_it_is_told_to_stop_them(kind, directory):
    url = command("start", directory, kind).removeprefix(f"{kind.name}: ").strip()
    found = kind(directory)
    assert (found.running, found.url) == (True, url)
    assert command("status", directory, kind) == f"{kind.name}: {url}\n"
    assert command("stop", directory, kind) == f"{kind.name}: stopped\n"
    assert not listens(found.port)


def command(act, directory, kind):
    arguments = [sys.executable, "-m", "support.servers", act, str(directory), kind.name]
    return subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=120, check=True).stdout


def test_it_dies_with_the_process_that_started_it(kind, directory):
    command = [sys.executable, "-c", OWNER, kind.name, str(directory)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        port = int(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: not (processes_below(directory) or listens(port)), "it is dead")


def processes_below(directory):
    """Return the processes whose working directory is below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(directory):
                found.append(process.name)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands a server over to another user")
def test_a_directory_that_the_servers_user_cannot_reach_is_refused(kind, tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(ServiceUnavailable, match=f"{kind.package_user} cannot reach .*chmod o"):
        kind(tmp_path).start()


def test_a_program_that_is_missing_is_named_with_its_package(tmp_path):
    class Absent(PostgreSQL):
        programs = ("postgres-of-nobody",)

    with pytest.raises(ServiceUnavailable, match="needs postgres-of-nobody: install the package postgresql"):
        Absent(tmp_path).start()

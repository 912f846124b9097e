"""A guest's channel: the real agent and driver, a socket, and the guest's own module on the other side."""

import hashlib
import io
import itertools
import logging
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from fpga_pool import guest
from fpga_pool.guest import accelerator, tool
from fpga_pool.guest.accelerator import Accelerator, Interrupted, RequestFailed
from fpga_pool.guest.frames import Lines, encode
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot
from fpga_pool.services.agent.instances import channel as channels
from fpga_pool.services.agent.instances.channel import ChannelLimits, GuestChannel
from support.disks import Ballast
from support.pages import blocks, commands, path_of

SLOT = "h0/sim0/slot0"
PATIENCE_S = 60.0


class Port(Accelerator):
    """The guest's end of a port, which is a socket here."""

    def __init__(self, line, **options):
        super().__init__("port", **options)
        self._line = line

    def _open(self):
        self._port = self._line.open()
        self._lines = Lines()


class Line:
    """The connection of host and guest. Like a port, it persists when one end is reopened."""

    def __init__(self):
        self._ends = []
        self._offered = threading.Semaphore(0)

    def open(self):
        """Return the guest's end of a new connection."""
        host, guest = socket.socketpair()
        guest.setblocking(False)
        self._ends.append(host)
        self._offered.release()
        return guest.detach()

    def connect(self):
        """Return the host's end of the connection, once a guest has opened it."""
        if not self._offered.acquire(timeout=0.05):
            raise ConnectionRefusedError("nobody")
        return self._ends.pop(0)

    def close(self):
        """Close connections of guests that were not accepted."""
        for end in self._ends:
            end.close()


@pytest.fixture
def new_channel(bench, tmp_path, until):
    """Return a function that serves a channel on a slot that the instance holds: `new_channel(function)`."""
    made = []

    def make(function="sha256", directory=tmp_path, **limits):
        action = HoldSlot(instance="vm", project_id="p", function=function, lease_epoch=1)
        assert bench.execute(bench.commands.command(action)) == ["accepted"]
        until(lambda: bench.worker.guest._hold is not None)
        line = Line()
        made.append(
            GuestChannel("vm", SLOT, bench.worker.guest, line.connect, directory / "port", ChannelLimits(**limits))
        )
        return line

    yield make
    for one in made:
        one.close()
    assert not list(tmp_path.glob("port.*"))


def compute(port, data, function=""):
    sink = io.BytesIO()
    size = port.run(io.BytesIO(data), sink, function)
    assert size == len(sink.getvalue())
    return sink.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def test_requests_are_computed_one_after_the_other(new_channel):
    with Port(new_channel()) as port:
        about = port.describe()
        assert (about["function"], about["slot"], about["max_input_bytes"]) == ("sha256", SLOT, 256 << 20)
        for data in (b"", b"abc", os.urandom(300_000)):
            assert compute(port, data, "sha256") == sha256(data)


def test_a_program_that_ends_in_the_middle_of_a_request_does_not_spoil_the_next(new_channel):
    line = new_channel()
    with Port(line) as first:
        os.write(first._port, encode({"id": "1", "op": "run", "function": "", "bytes": 100})[:-1])
        os.write(first._port, encode({"id": "1", "op": "data", "data": b"half of it"})[:30])
        # The port persists: the next program uses the same connection.
        assert compute(first, b"abc") == sha256(b"abc")


def test_a_full_disk_is_told_to_the_guest_and_the_channel_goes_on(new_channel, small_disk, tmp_path, until):
    disk = small_disk(tmp_path / "disk", 1)
    ballast, line = Ballast(disk), new_channel(directory=disk)
    with Port(line) as port:
        assert compute(port, b"abc") == sha256(b"abc")
        ballast.fill()
        with pytest.raises(RequestFailed, match="No space left"):
            compute(port, os.urandom(300_000))
        # The program ends in the middle of a request, and its partial input does not fit on the disk.
        os.write(port._port, encode({"id": "1", "op": "run", "function": "", "bytes": 100}))
        until(lambda: (disk / "port.in").stat().st_size == 0)
        ballast.fill()
        os.write(port._port, encode({"id": "1", "op": "data", "data": b"half of it"}))
    with Port(line) as port:
        assert port.describe()["slot"] == SLOT
        ballast.remove()
        assert compute(port, b"abc") == sha256(b"abc")


def test_a_guest_writes_no_line_of_its_own_into_the_log_and_not_a_long_one(new_channel, caplog):
    caplog.set_level(logging.INFO, "fpga_pool.services.agent.instances.channel")
    with Port(new_channel()) as port, pytest.raises(RequestFailed):
        compute(port, b"", "x\n2026-11-23 CRITICAL forged" + "x" * 10_000)
    (line,) = [record.getMessage() for record in caplog.records if "request of instance" in record.getMessage()]
    assert "x\\n2026" in line
    assert "\n" not in line
    assert len(line) < 300


def test_a_guest_does_not_fill_the_log(new_channel, caplog):
    caplog.set_level(logging.INFO, "fpga_pool.services.agent.instances.channel")
    with Port(new_channel()) as port:
        for _ in range(100):
            with pytest.raises(RequestFailed):
                compute(port, b"", "nonsense")
    # Ten at once, then one per five seconds.
    assert 10 <= len([record for record in caplog.records if "request of instance" in record.getMessage()]) < 100


def test_another_function_than_the_slot_holds_is_refused_with_both_names(new_channel):
    with Port(new_channel()) as port:
        with pytest.raises(RequestFailed, match="this accelerator is sha256, not aes") as failed:
            compute(port, b"abc", "aes")
        assert failed.value.code == "fpga_pool.invalid_input"
        assert compute(port, b"abc") == sha256(b"abc")


def test_an_input_that_is_too_large_is_refused_before_it_is_stored(new_channel, tmp_path):
    with Port(new_channel(max_input_bytes=1000)) as port:
        with pytest.raises(RequestFailed, match="1001 bytes; this accelerator accepts at most 1000"):
            compute(port, bytes(1001))
        assert compute(port, bytes(1000)) == sha256(bytes(1000))


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"op": "run", "bytes": -1}], "expected a number of bytes"),
        ([{"op": "run", "bytes": True}], "expected a number of bytes"),
        ([{"op": "run", "bytes": 1, "function": 7}], "expected a number of bytes"),
        ([{"op": "run", "bytes": 1}, {"op": "data", "data": b"ab"}], "more than the announced 1 bytes arrived"),
        ([{"op": "run", "bytes": 2}, {"op": "data", "data": b"a"}, {"op": "end"}], "corrupted or incomplete"),
        ([{"op": "run", "bytes": 1}, {"op": "data", "data": b"a"}, {"op": "end", "sha256": "0"}], "corrupted"),
    ],
)
def test_a_request_that_is_wrong_is_told_so_and_the_channel_goes_on(new_channel, messages, told):
    with Port(new_channel()) as port:
        for message in messages:
            os.write(port._port, encode({"id": "1", **message}))
        with pytest.raises(RequestFailed, match=told):
            list(port._answers("1", "end"))
        assert compute(port, b"abc") == sha256(b"abc")


def test_what_the_function_cannot_take_is_told(new_channel):
    with Port(new_channel("aes")) as port, pytest.raises(RequestFailed) as failed:
        compute(port, b"too short")
    assert failed.value.code == "fpga_pool.invalid_input"


@pytest.fixture
def failing():
    """Return a function that computes in a thread, and returns the thread and the list of its failures."""

    def start(port):
        failures = []

        def guest():
            try:
                compute(port, b"abc")
            except (Interrupted, RequestFailed) as error:
                failures.append(str(error))

        thread = threading.Thread(target=guest)
        thread.start()
        return thread, failures

    return start


def take_away(bench):
    bench.execute(bench.commands.command(FreeSlot(instance="vm", lease_epoch=1)))


def test_a_computation_that_takes_too_long_is_stopped(new_channel):
    with Port(new_channel("wordcount", run_s=0.1)) as port, pytest.raises(RequestFailed, match="stopped") as failed:
        compute(port, b"abc")
    assert failed.value.code == "fpga_pool.slot_fault"


def test_a_long_computation_gives_signs_of_life(bench, new_channel, until, failing, monkeypatch):
    """The guest waits at most 20 s for a message. Its clock advances by 1 s each time that it is read.

    It is read at least once between two messages, and once a second.
    """
    monkeypatch.setattr(channels, "SIGN_OF_LIFE_S", 0.02)
    ticks, seen_s = itertools.count(), [0]
    clock = SimpleNamespace(monotonic=lambda: seen_s.append(next(ticks)) or seen_s[-1], sleep=time.sleep)
    monkeypatch.setattr(accelerator, "time", clock)
    with Port(new_channel("wordcount"), timeout_s=20.0) as port:
        thread, failures = failing(port)
        until(lambda: seen_s[-1] > 60)
        take_away(bench)
        thread.join(PATIENCE_S)
        assert failures == ["sim0/slot0: the job was stopped"]


def test_a_slot_that_is_taken_away_ends_its_requests(bench, new_channel, until, failing):
    with Port(new_channel("wordcount")) as port:
        thread, failures = failing(port)
        until(lambda: bench.driver.state(bench.address).state.value == "BUSY")
        take_away(bench)
        thread.join(PATIENCE_S)
        assert failures == ["sim0/slot0: the job was stopped"]
        with pytest.raises(RequestFailed, match="not ready, or no longer assigned to this machine"):
            port.describe()


def test_a_guest_whose_host_went_away_asks_again_on_a_new_connection(new_channel):
    line = new_channel()
    with Port(line) as port:
        compute(port, b"abc")
        broken = socket.socket(fileno=os.dup(port._port))
        broken.shutdown(socket.SHUT_RDWR)
        broken.close()
        assert compute(port, b"abc") == sha256(b"abc")


def test_a_host_that_says_nothing_is_given_up_in_time():
    line = Line()
    with Port(line, timeout_s=0.05) as port, pytest.raises(Interrupted, match="did not answer in"):
        port.describe()
    line.close()


def test_the_guests_tool_prints_what_its_page_shows(new_channel, monkeypatch, tmp_path, capsys):
    line = new_channel("sha256")
    device = "/dev/virtio-ports/org.fpga_pool.0"
    monkeypatch.setattr(tool, "all_ports", lambda: [(0, device)])
    monkeypatch.setattr(tool, "find", lambda number: device)
    monkeypatch.setattr(tool, "Accelerator", lambda _, timeout_s: Port(line, timeout_s=timeout_s))
    monkeypatch.chdir(tmp_path)
    page = path_of("user/guest")
    for block in blocks(page):
        if block.caption:
            (tmp_path / block.caption).write_text(block.text)
    shown = [one for one in commands(page) if one.output and one.text.startswith("fpga-pool-guest")]
    assert [one.text.split()[1] for one in shown] == ["list", "run"]
    output = tmp_path / "output"
    for one in shown:
        to_file = ["--output", str(output)] if "run" in one.text else []
        assert tool.main([*one.text.split()[1:], *to_file]) == 0
        printed = output.read_text() if to_file else capsys.readouterr().out
        assert printed.strip() == one.output


def test_the_program_of_the_page_of_guests_prints_what_the_page_shows(new_channel, monkeypatch, tmp_path, capsys):
    line = new_channel("sha256")
    monkeypatch.setattr(guest, "find", lambda number: f"org.fpga_pool.{number}")
    monkeypatch.setattr(guest, "Accelerator", lambda _: Port(line))
    monkeypatch.chdir(tmp_path)
    page = path_of("user/guest")
    files = {block.caption: block.text for block in blocks(page) if block.caption}
    (tmp_path / "words.txt").write_text(files["words.txt"])
    (shown,) = [one.output for one in commands(page) if one.text == "python3 digest.py"]
    exec(compile(files["digest.py"], "digest.py", "exec"), {})
    assert capsys.readouterr().out.strip() == shown

"""The life cycle of a service process, tested with real processes and signals."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fpga_pool.cli.daemons import standalone
from fpga_pool.cli.daemons.process import FAILED, WRONG_USAGE
from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key
from support.forked import Forked
from support.waiting import wait_until

WAIT_S = 180.0

#: A service that starts and stops as specified by its arguments.
PROGRAM = """
    import contextlib, gc, logging, sys, time
    from fpga_pool.cli.daemons.process import run
    from fpga_pool.model.exceptions import ServiceUnavailable

    start, stop, *argv = sys.argv[1:]

    def act(how):
        if how == "slow":
            print("slow", flush=True)
            time.sleep(600)
        elif how == "count":
            print(gc.get_freeze_count() > 10_000 and len(gc.get_objects()) < gc.get_freeze_count() / 10, flush=True)
        elif how == "fail":
            raise ServiceUnavailable("the database does not respond; try again later\\nmore")

    @contextlib.contextmanager
    def service(conf):
        with contextlib.ExitStack() as ends:
            ends.callback(print, "closed", flush=True)
            act(start)
            ends.callback(act, stop)
            ends.callback(print, "stopping", flush=True)
            print("ready", flush=True)
            yield "service"

    sys.exit(run("fpga-pool-test", service, argv))
"""


class Process:
    """The service as a process, whose output is read line by line."""

    def __init__(self, config, *words):
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *words, f"--config-file={config}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def send(self, number):
        self.process.send_signal(number)

    def end(self):
        """Return the exit status, the rest of the output as words, and the error output."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out.split(), err


@pytest.fixture
def config(tmp_path):
    """Return the configuration of the service, which logs to a file."""
    path = tmp_path / "test.conf"
    path.write_text(f"[DEFAULT]\nlog_file = {tmp_path}/log\ngraceful_shutdown_timeout = 100\n")
    return path


@pytest.fixture
def launch(config):
    started = []

    def launch(*words):
        started.append(Process(config, *words))
        return started[-1]

    yield launch
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_an_end_that_takes_too_long_is_cut_short(launch, config, tmp_path):
    config.write_text(config.read_text().replace("timeout = 100", "timeout = 1"))
    process = launch("at-once", "slow")
    assert process.line() == "ready"
    process.send(signal.SIGTERM)
    status, lines, _ = process.end()
    # A busy machine may not get as far as printing both within the second.
    assert (status, lines) == (1, ["stopping", "slow"][: len(lines)])
    assert "stopped immediately: did not stop within 1 s" in (tmp_path / "log").read_text()


def test_a_second_signal_ends_at_once(launch, config, tmp_path):
    config.write_text(config.read_text().replace("timeout = 100", "timeout = 0"))  # wait without limit
    process = launch("at-once", "slow")
    assert process.line() == "ready"
    process.send(signal.SIGTERM)
    assert [process.line(), process.line()] == ["stopping", "slow"]
    process.send(signal.SIGTERM)
    assert process.end()[0] == 1
    assert "stopped immediately: a second SIGTERM" in (tmp_path / "log").read_text()


def test_a_signal_asks_for_a_report_without_secrets(launch, config, tmp_path):
    config.write_text(
        f"{config.read_text()}transport_url = rabbit://fpga_pool:hidden@localhost\n"
        f"[oslo_reports]\nlog_dir = {tmp_path}\n"
    )
    process = launch("at-once", "at-once")
    assert process.line() == "ready"
    process.send(signal.SIGUSR2)
    asked_for = "graceful_shutdown_timeout = 100"  # the last section contains this line
    wait_until(lambda: asked_for in "".join(map(Path.read_text, reports(tmp_path))), "the report is written")
    process.send(signal.SIGTERM)
    assert process.end()[0] == 0
    (report,) = map(Path.read_text, reports(tmp_path))
    assert [title in report for title in ("Package", "Threads", "Processes", "Configuration")] == [True] * 4
    assert "hidden" not in report


def test_the_garbage_collector_leaves_alone_what_was_there_at_the_start(launch, tmp_path):
    process = launch("at-once", "count")
    wait_until(lambda: (tmp_path / "log").exists() and "is ready" in (tmp_path / "log").read_text(), "it is ready")
    process.send(signal.SIGTERM)
    assert process.end()[1] == ["ready", "stopping", "True", "closed"]


def reports(directory):
    return list(directory.glob("fpga-pool-test_gurumeditation_*"))


def test_may_be_ended_while_it_starts(launch):
    process = launch("slow", "at-once")
    assert process.line() == "slow"
    process.send(signal.SIGTERM)
    assert process.end() == (0, ["closed"], "")


def test_a_start_that_fails_is_one_line_and_a_status(launch):
    process = launch("fail", "at-once")
    assert process.end() == (1, ["closed"], "fpga-pool-test: the database does not respond; try again later\n")


def test_a_wrong_configuration_is_one_line_and_another_status(launch, config):
    config.write_text("[api]\nport = 99999\n")
    process = launch("at-once", "at-once")
    assert process.end() == (
        2,
        [],
        "fpga-pool-test: [api] port: expected a whole number from 0 to 65535, found '99999'\n",
    )


def test_a_hangup_has_the_log_level_read_again_and_the_end_is_in_order(launch, config, tmp_path):
    process = launch("at-once", "at-once")
    assert process.line() == "ready"
    log = tmp_path / "log"

    def logged(words):
        until_s = time.monotonic() + WAIT_S
        while words not in log.read_text():
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.02)

    logged("service is ready")
    whole = config.read_text()
    config.write_text(whole + "debug = true\n")
    process.send(signal.SIGHUP)
    logged("the configuration was reloaded")
    assert "Option DEFAULT.debug changed" in log.read_text()
    config.write_text("[DEFAULT\n")
    process.send(signal.SIGHUP)
    logged("the configuration was not reloaded: ")
    process.send(signal.SIGINT)
    assert process.end() == (0, ["stopping", "closed"], "")


@pytest.mark.parametrize("module", ["agent", "api"])
def test_a_service_that_plans_nothing_loads_no_policy(module):
    script = (
        "import sys\n"
        f"from fpga_pool.cli.daemons import {module} as program\n"
        "try:\n    program.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name.startswith(('fpga_pool.core.makespan', 'scipy')) for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert "usage: fpga-pool" in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[scheduler]\ninterval_s = often\n", "[scheduler] interval_s: expected a number of seconds"),
        (
            "[scheduler]\ndefault_policy = nosuch\n",
            "[scheduler] default_policy: no such batch or online policy 'nosuch'",
        ),
        (
            "[scheduler]\ndefault_policy = throughput\n",
            "[scheduler] default_policy: throughput is an online policy other than online_policy (benefit_plus)",
        ),
        (
            "[api]\ntls_cert = /api.pem\n",
            "[api] tls_key: required because tls_cert is /api.pem; set both or none",
        ),
        ("nonsense\n", "Failed to parse "),
        ("[api]\ntls_cert = \xff\n", "a configuration file is no UTF-8: "),
    ],
)
def test_the_embedded_pool_refuses_a_wrong_configuration_in_one_line(tmp_path, capsys, text, complaint):
    path = tmp_path / "pool.conf"
    path.write_text(f"[DEFAULT]\nlog_file = {tmp_path}/log\n{text}", encoding="latin-1")
    status = standalone.main([f"--config-file={path}", f"--state-dir={tmp_path}/state", "--port=0"])
    assert status == WRONG_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fpga-pool-standalone: {complaint}")


#: Configuration errors that a component of the pool or a library detects only when it is created.
FOUND_LATER = [
    ("[oslo_messaging_notifications]\ndriver = nosuch\n", "[oslo_messaging_notifications] driver: expected some of "),
    ("[agent]\nenclosure = box star sim0\n", "[agent] enclosure: 'box star sim0' is invalid; expected NAME TOPOLOGY"),
    (
        "[driver_simulated]\nboard = nosuch\n",
        "[driver_simulated] board: board 'nosuch' is not in the catalogue; it has ",
    ),
    ("[cors]\nallowed_origin = foo\n", "[cors] allowed_origin: expected * or PROTOCOL://HOST[:PORT] in small letters"),
    ("[healthcheck]\nbackends = nosuch\n", "[healthcheck] backends: expected some of disable_by_file, "),
    (
        "[healthcheck]\nallowed_source_ranges = here\n",
        "[healthcheck] allowed_source_ranges: 'here' does not appear to be an IPv4 or IPv6 network",
    ),
    (
        "[oslo_middleware]\nenable_proxy_headers_parsing = maybe\n",
        "[oslo_middleware] enable_proxy_headers_parsing: expected true or false, found 'maybe'",
    ),
    ("[oslo_policy]\nenforce_new_defaults = maybe\n", "[oslo_policy] enforce_new_defaults: expected true or false"),
    ("[DEFAULT]\ndefault_log_levels = nosuch\n", "[DEFAULT] default_log_levels: "),
]


@pytest.mark.parametrize(("text", "complaint"), FOUND_LATER)
def test_what_only_a_part_of_the_embedded_pool_reads_is_refused_in_one_line(config, tmp_path, text, complaint):
    with config.open("a") as file:
        file.write(text)
    options = [f"--config-file={config}", f"--state-dir={tmp_path}/state", "--port=0"]
    status, output = start("standalone", *options)
    assert status == WRONG_USAGE, output
    (line,) = output.splitlines()
    assert line.startswith(f"fpga-pool-standalone: {complaint}")


def start(daemon, *options):
    """Run a daemon that is expected to exit; return its exit status and its short output."""
    process = Forked(daemon, options)
    with process.stdout as output:
        try:
            return process.wait(WAIT_S), output.read()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[keystone_authtoken]\nauth_version = nosuch\n", "[keystone_authtoken] auth_version: Invalid version"),
        (
            "[keystone_authtoken]\nauth_type = nosuch\n",
            "[keystone_authtoken] auth_type: The plugin nosuch could not be",
        ),
        (
            "[keystone_authtoken]\nhttp_connect_timeout = soon\n",
            "[keystone_authtoken] http_connect_timeout: expected a whole number of",
        ),
        ("[keystone_authtoken]\ncafile = /nowhere\n", "[keystone_authtoken] cafile: /nowhere cannot be used: No such"),
        ("[keystone_authtoken]\ncafile = /etc/passwd\n", "[keystone_authtoken] cafile: /etc/passwd cannot be used: "),
        (
            "[keystone_authtoken]\nkeyfile = /nowhere\n",
            "[keystone_authtoken] keyfile: /nowhere cannot be read: ",
        ),
        (
            "[keystone_authtoken]\nmemcache_security_strategy = MAC\n",
            "[keystone_authtoken]: memcache_secret_key must be defined when a memcache_security_strategy is defined",
        ),
        (
            "[DEFAULT]\ntransport_url = rabbit://a:b@127.0.0.1:1/\n[oslo_messaging_rabbit]\nssl_ca_file = /nowhere\n",
            "[oslo_messaging_rabbit] ssl_ca_file: /nowhere cannot be used: No such file",
        ),
        (
            "[profiler]\nenabled = true\nconnection_string = nosuch://\n",
            "[profiler] connection_string: Driver not found for connection string: nosuch://",
        ),
        ("[keystone_authtoken]\ntoken_cache_time = -5\n", "[keystone_authtoken] token_cache_time: expected -1 to 10"),
        ("[DEFAULT]\nrpc_response_timeout = -1\n", "[DEFAULT] rpc_response_timeout: expected 1 to 1000000000 seconds,"),
        (
            "[DEFAULT]\ntransport_url = rabbit://a:b@127.0.0.1:1/\n"
            "[oslo_messaging_rabbit]\nheartbeat_timeout_threshold = -1\n",
            "[oslo_messaging_rabbit] heartbeat_timeout_threshold: expected 0 to 1000000000 seconds, found -1",
        ),
        (
            "[DEFAULT]\nrpc_response_timeout = soon\n",
            "[DEFAULT] rpc_response_timeout: expected a whole number of seconds",
        ),
        ("[DEFAULT]\ntransport_url = nosuch\n", "[DEFAULT] transport_url: expected a URL such as rabbit://"),
        ("[DEFAULT]\ntransport_url = nosuch://\n", "[DEFAULT] transport_url: expected a URL such as rabbit://"),
        ("[DEFAULT]\ntransport_url = rabbit://a:b\n", "[DEFAULT] transport_url: expected a URL such as rabbit://"),
        ("[DEFAULT]\ngraceful_shutdown_timeout = -7\n", "[DEFAULT] graceful_shutdown_timeout: expected 0 to "),
        ("[oslo_reports]\nlog_dir = /nowhere\n", "[oslo_reports] log_dir: directory /nowhere does not exist"),
        ("[oslo_reports]\nfile_event_handler = /nowhere\n", "[oslo_reports] file_event_handler: /nowhere cannot be"),
        ("[api]\nhost = a/b\n", "[api] host: a/b is not a valid host address"),
        ("[metrics]\nhost = a/b\n", "[metrics] host: a/b is not a valid host address"),
    ],
)
def test_what_only_a_library_reads_is_refused_in_one_line(config, tmp_path, text, complaint):
    load_or_create_signing_key(tmp_path / "api.pem")
    given = {"auth_type": "none", "www_authenticate_uri": "http://keystone.test"}
    given = "".join(f"{name} = {value}\n" for name, value in given.items() if name not in text)
    with config.open("a") as file:
        file.write(f"transport_url = fake:///\n[api]\nkey = {tmp_path}/api.pem\n[keystone_authtoken]\n{given}{text}")
    status, output = start("api", f"--config-file={config}")
    assert status == WRONG_USAGE, output
    (line,) = output.splitlines()
    assert line.startswith(f"fpga-pool-api: {complaint}")


def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path, capsys):
    complaint = f"{tmp_path}: cannot be read: Is a directory\n"
    assert standalone.main([f"--config-file={tmp_path}"]) == WRONG_USAGE
    assert capsys.readouterr().err == f"fpga-pool-standalone: {complaint}"
    assert Process(tmp_path, "at-once", "at-once").end() == (2, [], f"fpga-pool-test: {complaint}")


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("--log-file=/nowhere/log", "[DEFAULT] log_file: /nowhere/log cannot be written: No such file or directory"),
        ("--log-config-append=/nowhere/log", "[DEFAULT] log_config_append: /nowhere/log: "),
        ("--state-dir=/dev/null", "[standalone] state_dir: /dev/null: File exists"),
        ("--state-dir=", "[standalone] state_dir: expected a directory, found ''"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(config, word, complaint):
    status, output = start("standalone", f"--config-file={config}", "--port=0", word)
    assert status == WRONG_USAGE, output
    (line,) = output.splitlines()
    assert line.startswith(f"fpga-pool-standalone: {complaint}")


def test_a_wrong_value_on_the_command_line_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        standalone.main(["--port=99999"])
    assert ended.value.code == WRONG_USAGE
    assert "--port" in capsys.readouterr().err


def test_the_embedded_pool_notices_a_taken_port_before_its_agents_start(tmp_path):
    config = tmp_path / "pool.conf"
    config.write_text(f"[DEFAULT]\nlog_file = {tmp_path}/log\n[standalone]\nhosts = 1\nrequesters = 0\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [f"--config-file={config}", f"--state-dir={tmp_path}/state", f"--port={port}"]
        command = [sys.executable, "-m", "fpga_pool.cli.daemons.standalone", *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == FAILED
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"fpga-pool-standalone: [api] port: 127.0.0.1 port {port} is in use")
    # No agent has started: with its first message, a scheduler would discover slots. Only what has started is stopped.
    log = (tmp_path / "log").read_text()
    assert "sim0" not in log
    assert "did not stop cleanly" not in log


THREADS_THAT_ALLOCATE = """
import ctypes, threading
from fpga_pool.cli.daemons.process import limit_heaps

limit_heaps()
together = threading.Barrier(8)

def allocate():
    together.wait()
    kept = [bytes(1000) for _ in range(1000)]
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def test_threads_of_a_service_share_two_heaps():
    done = subprocess.run([sys.executable, "-c", THREADS_THAT_ALLOCATE], capture_output=True, text=True, check=True)
    assert done.stdout.count("<heap nr=") == 2


LOGGING = """
import logging, sys
from oslo_config import cfg
from fpga_pool.cli.daemons.process import configure
from fpga_pool.model.exceptions import InvalidInput

configure(cfg.CONF, "fpga-pool-test", sys.argv[1:], plans=False)
try:
    raise InvalidInput("what is wrong")
except InvalidInput as error:
    logging.warning("skipped: %s", error)
    logging.warning("skipped")
"""


def test_a_warning_has_the_text_of_the_exception_that_it_is_about_once(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-W", "ignore", "-c", LOGGING, f"--log-file={log}", "--config-file=/dev/null"]
    subprocess.run(command, check=True, timeout=WAIT_S)
    said = [line.partition("[-] ")[2] for line in log.read_text().splitlines() if "skipped" in line]
    assert said == ["skipped: what is wrong", "skipped: fpga_pool.model.exceptions.InvalidInput: what is wrong"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        *((["-m", f"fpga_pool.cli.daemons.{name}"], 2) for name in ("agent", "api", "scheduler", "standalone")),
        (["-c", "import fpga_pool.wsgi.api"], 3),
        (["-m", "fpga_pool.cli.admin.main"], 2),
    ],
    ids=["agent", "api", "scheduler", "standalone", "wsgi", "manage"],
)
def test_an_option_whose_name_is_misspelt_stops_every_program(tmp_path, words, status):
    file = tmp_path / "fpga_pool.conf"
    file.write_text("[keystone_authtoken]\nanything = 1\n[agent]\negress_mpbs = 60\n")
    environment = os.environ | {"OS_FPGA_POOL_CONFIG_FILES": str(file)}
    given = [] if words[0] == "-c" else [f"--config-file={file}"]
    command = ["service", "list"] if words[-1].endswith("admin.main") else []
    ended = subprocess.run(
        [sys.executable, *words, *given, *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    says = f": {file}: [agent] egress_mpbs: no such option; did you mean egress_mbps?\n"
    assert (ended.returncode, ended.stderr.count("\n"), ended.stderr.endswith(says)) == (status, 1, True), ended.stderr

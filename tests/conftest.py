import datetime
import gc
import ipaddress
import logging
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadScopeScheduling

import fpga_pool.rpc  # noqa: F401  # chooses native threads before a test imports oslo.messaging
from fpga_pool.model.catalogue import Catalogue
from support.servers import MariaDB, PostgreSQL, RabbitMQ

# The same examples in every run.  To search for new ones, pass --hypothesis-profile=default.
settings.register_profile(
    "quick",
    derandomize=True,
    print_blob=True,
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=25)
#: Other inputs in every run; FPGA_POOL_FUZZ is the number of each kind.
settings.register_profile(
    "fuzz",
    settings.get_profile("quick"),
    derandomize=False,
    max_examples=int(os.environ.get("FPGA_POOL_FUZZ", "10000")),
)

TESTS = Path(__file__).parent

#: Order in which workers take tests: one starts with the cloud, the others with the unit tests.  Files that take
#: minutes come before those that take seconds, so that at the end no worker waits long for another.
ORDER = ("functional/cloud", "unit", "figures", "functional/compute", "functional", "component", "benchmarks")
#: Directories whose tests share servers, a hypervisor, a cloud or network namespaces, so that one worker runs them all.
SHARED = ("bad_input", "cloud", "compute", "egress", "nova", "outages", "placement")
#: Files and directories that take long; elsewhere individual tests are marked.
LONG = (
    "figures/",
    "functional/cloud/test_gangs.py",
    "functional/cloud/test_horizon.py",
    "functional/cloud/test_many_boots.py",
    "functional/cloud/test_pages.py",
    "functional/cloud/test_stock.py",
    "functional/cloud/test_tenants.py",
    "functional/cloud/test_unified_limits.py",
    "functional/compute/test_cgroups_2.py",
    "functional/compute/test_live_gangs.py",
    "functional/compute/test_sending_guest.py",
    "functional/compute/test_tier_shares.py",
    "functional/compute/test_tiers.py",
    "functional/egress/test_testbed.py",
    "functional/outages/test_clock.py",
    "functional/outages/test_disk.py",
    "functional/outages/test_network.py",
    "functional/tc/test_changed_plan.py",
    "functional/tc/test_rates.py",
    "functional/tc/test_tap_rates.py",
    "functional/test_backlog.py",
    "functional/test_dashboard_drawing.py",
    "functional/test_notebooks.py",
    "functional/test_own_host.py",
    "functional/test_pool_top.py",
    "functional/test_profiler.py",
    "functional/test_replanning.py",
    "functional/test_screenshots.py",
    "functional/test_servers.py",
    "functional/test_whole_demo.py",
)
#: Files of tests that measure the machine, compare a running pool with its plan, or whose guests occupy all processors:
#: nothing else runs at the same time.
QUIET = (
    "functional/compute/test_sending_guest.py",
    "functional/compute/test_tier_shares.py",
    "functional/tc/test_changed_plan.py",
    "functional/tc/test_rates.py",
    "functional/tc/test_tap_rates.py",
    "functional/test_hostile.py",
    "functional/test_online.py",
    "functional/test_whole_demo.py",
)
#: Time in seconds since the epoch from which on tests marked long are skipped; tools/test sets it.
LONG_UNTIL = float(os.environ.get("FPGA_POOL_LONG_UNTIL", "inf"))
#: Tests that can fail on a loaded machine, with the reason.  Only these run a second time if they fail.
SENSITIVE: dict[str, str] = {}


def pytest_addoption(parser):
    parser.addoption(
        "--long", action="store_true", help="also run the tests marked long, and more examples of every property"
    )
    parser.addoption("--traces", type=int, help="random traces of each parity test")


def pytest_configure(config):
    settings.load_profile("long" if config.getoption("long") else "quick")
    if config.getoption("hypothesis_profile") is None:
        # Otherwise examples depend on the modules that earlier tests have imported, as hypothesis uses their constants.
        providers._get_local_constants = lambda: providers._local_constants


def pytest_ignore_collect(collection_path, config):
    """Import no file whose tests are all deselected by `-m`, as a run of the quiet tests needs few of them."""
    if collection_path.suffix == ".py" and config.option.markexpr in ("quiet", "not quiet"):
        quiet = collection_path.relative_to(TESTS).as_posix() in QUIET
        return True if quiet != (config.option.markexpr == "quiet") else None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Disable garbage collection during imports, and exclude their objects from it later, which saves seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests by their files, deselect long ones, and put the others into the order of ORDER."""
    for item in items:
        path = item.path.relative_to(TESTS)
        if path.as_posix() in QUIET:
            item.add_marker(pytest.mark.quiet)
        if path.as_posix().startswith(LONG):
            item.add_marker(pytest.mark.long)
        if reason := SENSITIVE.get(f"{path}::{item.originalname}"):
            item.add_marker(pytest.mark.flaky(reruns=1, reason=reason))
    if not config.getoption("long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=_order)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.time() >= LONG_UNTIL and item.get_closest_marker("long"):
        pytest.skip("this machine is too slow: no time is left for tests marked long")


class _Groups(LoadScopeScheduling):
    """Assigns all tests of a file, or of a directory in SHARED, to one worker, as they share fixtures.

    xdist's own `--dist loadgroup` (3.8) has no effect with pytest 9.2, in which it can no longer add groups to names.
    """

    def _split_scope(self, nodeid):
        path = Path(nodeid.partition("::")[0])
        kind, folder = path.parts[1:3]
        return f"{kind}/{folder}" if kind == "functional" and folder in SHARED else f"{path}"


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # it would order by the numbers of tests, not by their duration
    return _Groups(config, log)


def _order(item):
    path = item.path.relative_to(TESTS).as_posix()
    return next((place for place, prefix in enumerate(ORDER) if path.startswith(f"{prefix}/")), len(ORDER))


@pytest.fixture(autouse=True)
def log_level():
    """Restore the log level after a test, as commands and daemons that run in this process change it."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture(scope="session")
def make_catalogue():
    """Make a catalogue with one board, `fast`: functions by name, as (seconds, kinds ...) or whole entries."""

    def make(functions, *, slots, load_s, b_s_per_byte=1e-9):
        def entry(a_s, *kinds):
            return {
                "version": "1.0",
                "slot_kinds": list(kinds),
                "io_bps": 8e6,
                "preemptible": False,
                "cpu_time": {"a_s": 0, "b_s_per_byte": 10 * b_s_per_byte},
                "fpga_time": {"fast": {"a_s": a_s, "b_s_per_byte": b_s_per_byte}},
                "source": "test",
            }

        region = {"bitstream_bytes": 4000}
        board = {
            "slots": list(slots),
            "regions": {"small": region, "large": region},
            "configuration_bps": 8 * 4000 / load_s,
            "dma_bps": 1e9,
            "source": "test",
        }
        entries = {name: value if isinstance(value, dict) else entry(*value) for name, value in functions.items()}
        return Catalogue.from_mapping({"format_version": 1, "functions": entries, "boards": {"fast": board}}, "test")

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Return the files of a new self-signed certificate for 127.0.0.1, and of its key."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "responder-1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (directory / "key.pem").chmod(0o600)
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture(scope="session")
def servers_directory():
    """A directory that the servers' own users can access, unlike pytest's directories."""
    # Ignore files that cannot be removed, such as the directory of a small disk that is still mounted.
    with tempfile.TemporaryDirectory(prefix="fpga-pool-servers-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture(scope="session")
def run_server():
    """Run a server during a fixture, or skip the test if the machine lacks something, and say what."""

    def run(server):
        if problem := server.missing():
            pytest.skip(problem)
        with server:
            yield server

    return run


@pytest.fixture(scope="session")
def rabbitmq(run_server, servers_directory):
    yield from run_server(RabbitMQ(servers_directory))


@pytest.fixture(scope="session")
def mariadb(run_server, servers_directory):
    yield from run_server(MariaDB(servers_directory))


@pytest.fixture(scope="session")
def postgresql(run_server, servers_directory):
    yield from run_server(PostgreSQL(servers_directory))


@pytest.fixture(scope="session")
def small_disk():
    """Make small file systems: `small_disk(directory, megabytes)`."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = []

    def mount(place: Path, megabytes: int) -> Path:
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=711", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting a small file system is not possible here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)

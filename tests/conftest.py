import datetime
import ipaddress
import tempfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

import fpga_pool.rpc  # noqa: F401  # chooses native threads before a test imports oslo.messaging
from fpga_pool.model.catalogue import Catalogue
from support.servers import MariaDB, PostgreSQL, RabbitMQ

# The same examples in every run: who looks for new ones passes --hypothesis-profile=default.
settings.register_profile("repeatable", derandomize=True, print_blob=True, deadline=None)
settings.load_profile("repeatable")


#: Functional tests that one worker runs while another runs the unit tests: they wait more than they compute.
WITH_THE_CLOUD = ("cloud", "compute", "nova", "placement", "test_nova_plugin.py")
#: Functional tests that measure the machine, or compare a running pool with its plan: the last of all.
QUIET = (
    "compute/test_live_gangs.py",
    "compute/test_tiers.py",
    "compute/test_tier_shares.py",
    "tc/test_changed_plan.py",
    "tc/test_rates.py",
    "test_replanning.py",
    "test_shaping.py",
    "test_testbed.py",
)
#: The lane that begins when nothing else runs any more.
ALONE = "alone"


def _lane(path):
    """Return (order, name) of the tests of a file, given from here: one worker runs all that have the same name."""
    kind, _, rest = path.as_posix().partition("/")
    if kind != "functional":
        return 1, f"{path}"
    if rest in QUIET:
        return 3, ALONE
    return (0, "cloud") if rest.startswith(WITH_THE_CLOUD) else (2, f"{path}")


#: Tests with threads or processes that wait for each other: what fails runs once more, for the machine is shared.  The
#: summary lists the first failure as RERUN.  It is a race to be found, not noise.
RACING = tuple(f"component/{room}" for room in ("api", "client", "cli", "transfer", "drivers", "rpc", "services"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put tests into an order in which two workers both have something to do, and which suits one as well.

    One begins with the real cloud, the other with the unit tests; whoever is free takes the next functional tests.
    """
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(("functional", *RACING)):
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: _lane(item.path.relative_to(Path(__file__).parent))[0])


class _Lanes(LoadScopeScheduling):
    """Gives a worker all tests of a lane; what runs alone waits until the other workers have ended."""

    def _split_scope(self, nodeid):
        return _lane(Path(nodeid.partition("::")[0]).relative_to("tests"))[1]

    def _reschedule(self, node):
        others = [other for other in self.nodes if other is not node]
        if next(iter(self.workqueue), None) != ALONE or node.shutting_down:
            super()._reschedule(node)
        elif not all(other.shutting_down for other in others):
            if self._pending_of(self.assigned_work[node]) <= 2:
                node.shutdown()  # it runs what it has; one of the others goes on
        elif not any(self._pending_of(self.assigned_work[other]) for other in others):
            super()._reschedule(node)

    def mark_test_complete(self, node, item_index, duration=0):
        super().mark_test_complete(node, item_index, duration)
        for other in self.nodes:
            self._reschedule(other)


def pytest_xdist_make_scheduler(config, log):
    """Divide tests by lanes among workers, if there are any: pytest --numprocesses 2 --no-loadscope-reorder."""
    return _Lanes(config, log)


@pytest.fixture(scope="session")
def make_catalogue():
    """Make a catalogue of one board, `fast`: functions by name, as (seconds, kinds ...) or whole entries."""

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
    """Files of a fresh self-signed certificate for 127.0.0.1, and of its key."""
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
    return directory / "cert.pem", directory / "key.pem"


@pytest.fixture(scope="session")
def servers_directory():
    """A directory that the servers' own users can reach, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="fpga-pool-servers-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture(scope="session")
def run_server():
    """Run a server for as long as a fixture lasts, or skip with what the machine lacks."""

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

"""The installation of packages by tools, and their messages and actions if system packages are missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.servers import Libvirt, MariaDB, RabbitMQ

ROOT = Path(__file__).resolve().parents[2]


def missing(tmp_path, *packages, user="1000"):
    """Install the system packages of a profile when some are missing; return exit code, error output and apt calls."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in {
        "bindep": f"printf '%s\\n' {' '.join(packages)}" if packages else "true",
        "id": f"echo {user}",
        "apt-get": f'echo "$*" >>{tmp_path}/calls',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    script = f". {ROOT}/tools/bootstrap; VENV={tmp_path}; BOOTSTRAP_LOG={tmp_path}/log; PATH={commands}:$PATH; "
    # A test must not change which services the machine starts.
    script += 'without_starting_services() { "$@"; }; install_system_packages cloud'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=200, check=False)
    calls = tmp_path / "calls"
    return done.returncode, done.stderr, calls.read_text() if calls.exists() else ""


def test_a_user_is_told_what_root_is_to_install(tmp_path):
    code, said, calls = missing(tmp_path, "rabbitmq-server", "libvirt-dev")
    assert code == 1
    assert "as root, apt-get install --no-install-recommends rabbitmq-server libvirt-dev" in said
    assert not calls


def test_root_installs_what_is_missing_and_nothing_else(tmp_path):
    code, said, calls = missing(tmp_path, "rabbitmq-server", user="0")
    assert code == 0, said
    assert calls.splitlines() == ["update", "install -y --no-install-recommends rabbitmq-server"]


@pytest.mark.parametrize("user", ["0", "1000"])
def test_nothing_is_installed_where_nothing_is_missing(tmp_path, user):
    assert missing(tmp_path, user=user) == (0, "", "")


def test_the_cloud_of_one_machine_has_the_packages_of_its_servers():
    command = [str(Path(sys.prefix) / "bin" / "bindep"), "--list_all", "newline", "--file", str(ROOT / "bindep.txt")]
    listed = subprocess.run([*command, "cloud"], capture_output=True, text=True, timeout=200, check=True).stdout
    assert {server.package for server in (RabbitMQ, MariaDB, Libvirt)} <= set(listed.split())


def test_uv_is_told_what_pip_is_configured_with(tmp_path):
    (tmp_path / "pip.conf").write_text("""\
[global]
index-url = https://pip.example/simple
extra-index-url =
    https://one.example/simple
    https://two.example/simple
find-links = /wheels /more
cert = /ca.pem
timeout = 60
[install]
cert = /other.pem
""")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_INDEX_URL": "https://own.example/simple"}
    env |= {"PIP_CONSTRAINT": "/constraints.txt"}
    script = f'. {ROOT}/tools/bootstrap; {sys.executable} -m pip config list | {sys.executable} -c "$UV_SETTINGS"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, timeout=200, check=True)
    assert sorted(done.stdout.splitlines()) == [
        "SSL_CERT_FILE=/other.pem",
        "UV_CONSTRAINT=/constraints.txt",
        "UV_DEFAULT_INDEX=https://own.example/simple",
        "UV_FIND_LINKS=/wheels,/more",
        "UV_INDEX=https://one.example/simple https://two.example/simple",
    ]


@pytest.mark.parametrize(
    ("user", "pythons", "chosen"),
    [
        ("1000", {"first": "", "second": ""}, "first"),
        ("1000", {"first": "version", "second": ""}, "second"),
        ("1000", {"first": "ensurepip", "second": ""}, "second"),
        ("0", {"first": "ensurepip", "second": ""}, "first"),
        ("1000", {"first": "ensurepip", "second": "version"}, "first"),
        ("1000", {"first": "version"}, None),
    ],
    ids=["the first", "not too old", "with venv", "root installs venv", "to be named without venv", "none"],
)
def test_python_is_the_first_that_can_make_an_environment(tmp_path, user, pythons, chosen):
    commands = {"id": f"echo {user}", "apt-get": "true"}
    # A Python that lacks a feature fails for code that contains the name of the feature.
    commands |= {name: f"case $2 in *{lacks or 'nothing'}*) exit 1;; esac" for name, lacks in pythons.items()}
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = f". {ROOT}/tools/bootstrap; unset PYTHON; PATH={tmp_path}:$PATH; PYTHONS=({' '.join(pythons)})"
    command = ["bash", "-c", f"{script}; find_python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if chosen is None:
        assert done.returncode == 2
        assert "needs Python 3.11 or newer" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/{chosen}\n")


@pytest.mark.parametrize(
    ("uv", "calls"),
    [
        ("exit 0", ["uv pip install"]),
        ("exit 1", ["uv pip install", "python -m pip install --disable-pip-version-check"]),
        (None, ["python -m pip install --disable-pip-version-check"]),
    ],
    ids=["works", "fails", "is not to be had"],
)
def test_pip_installs_what_uv_does_not(tmp_path, uv, calls):
    (tmp_path / "bin").mkdir()
    python = f"#!/bin/sh\ncase $* in *check?uv) {'true' if uv else 'false'};; *config*|-c*) ;; *) {{}};; esac\n"
    for name, body in {"python": python, "uv": "#!/bin/sh\n{}\n" + (uv or "")}.items():
        (tmp_path / "bin" / name).write_text(body.format(f'echo "{name} $*" >>{tmp_path}/calls'))
        (tmp_path / "bin" / name).chmod(0o755)
    script = (
        f". {ROOT}/tools/bootstrap; VENV={tmp_path}; BOOTSTRAP_LOG={tmp_path}/log; install_packages it --editable x"
    )
    subprocess.run(["bash", "-c", script], timeout=200, check=True)
    made = (tmp_path / "calls").read_text().replace(f" --python {tmp_path}/bin/python", "").splitlines()
    assert made == [f"{call} --editable x" for call in calls]

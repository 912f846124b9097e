"""The declarations in setup.cfg are correct: entry points load, packages exist, data files are shipped."""

import configparser
import fnmatch
import re
import subprocess
import tomllib
from importlib.metadata import EntryPoint, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fpga_pool"


#: Libraries of extras whose entry points are skipped where a system package is missing.
OPTIONAL = {"libvirt"}


def read_setup_cfg() -> configparser.ConfigParser:
    # A value such as "module:name" keeps its colon.
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


def declared_entry_points() -> list[EntryPoint]:
    found = []
    for group, lines in read_setup_cfg()["options.entry_points"].items():
        for line in lines.strip().splitlines():
            name, value = line.split("=")
            found.append(EntryPoint(name.strip(), value.strip(), group))
    return found


def files_of_package() -> list[Path]:
    return [path for path in PACKAGE.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]


def runs_in_nova(entry_point: EntryPoint) -> bool:
    return entry_point.module.startswith("fpga_pool.nova_plugin")


@pytest.mark.parametrize(
    "entry_point",
    [entry_point for entry_point in declared_entry_points() if not runs_in_nova(entry_point)],
    ids=lambda entry: f"{entry.group}:{entry.name}",
)
def test_entry_point_loads(entry_point):
    try:
        loaded = entry_point.load()
        # The `openstack` command treats modules with a function of this name as plug-ins.
        assert callable(getattr(loaded, "make_client", loaded))
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")


def test_installed_entry_points_are_those_of_setup_cfg():
    assert set(distribution("fpga_pool").entry_points) == set(declared_entry_points()), "install fpga_pool again"


def test_pbr_builds_the_package():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["build-backend"] == "pbr.build"


def test_servers_clouds_and_guest_images_for_tests_are_not_in_the_wheel():
    assert (ROOT / "tests" / "support" / "servers").is_dir()
    assert distribution("fpga_pool").read_text("top_level.txt").split() == ["fpga_pool"]
    assert [entry.value for entry in declared_entry_points() if entry.module.partition(".")[0] != "fpga_pool"] == []


def test_every_package_directory_has_an_init():
    holding_modules = {path.parent for path in files_of_package() if path.suffix == ".py"}
    between = {parent for path in holding_modules for parent in path.parents if parent.is_relative_to(PACKAGE)}
    missing = [path for path in holding_modules | between if not (path / "__init__.py").exists()]
    assert missing == []


def test_every_data_file_of_the_package_is_shipped():
    patterns = read_setup_cfg()["options.package_data"]["*"].split()
    unshipped = [
        path
        for path in files_of_package()
        if path.suffix not in {".py", ".pyc"} and not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)
    ]
    assert unshipped == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_no_key_database_or_lock_of_a_run_is_in_the_repository():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    left = [name for name in listed.splitlines() if re.search(r"\.(pem|sqlite(-shm|-wal)?)$|(^|/)lock$", name)]
    assert left == []


@pytest.mark.parametrize("release", ["2026.1", "master"])
def test_requirements_admit_the_versions_of_openstacks_upper_constraints(release):
    constraints = tomllib.loads((ROOT / "tests" / "unit" / "upper_constraints.toml").read_text())[release]["versions"]
    wanted = {canonicalize_name(name): version for name, version in constraints.items()}
    cfg = read_setup_cfg()
    extras = cfg["options.extras_require"]
    lists = [
        cfg["options"]["install_requires"],
        *(
            extras[name]
            for name in ("openstack", "nova", "agent", "controller", "mysql", "postgresql", "libvirt", "exact")
        ),
    ]
    lines = [line for text in lists for line in text.splitlines()]
    requirements = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    named = [requirement for requirement in requirements if canonicalize_name(requirement.name) in wanted]
    assert len(named) > 20
    refused = [
        f"{requirement} does not admit {wanted[canonicalize_name(requirement.name)]}"
        for requirement in named
        if not requirement.specifier.contains(wanted[canonicalize_name(requirement.name)])
    ]
    assert refused == []

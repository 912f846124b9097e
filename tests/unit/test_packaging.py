"""What setup.cfg promises holds: entry points load, packages are packages, data files are shipped."""

import configparser
import fnmatch
from importlib.metadata import EntryPoint, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fpga_pool"


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # those of Nova's own modules
@pytest.mark.parametrize("entry_point", declared_entry_points(), ids=lambda entry: f"{entry.group}:{entry.name}")
def test_entry_point_loads(entry_point):
    loaded = entry_point.load()
    # Nova takes modules with a function of this name for validators.
    assert callable(getattr(loaded, "register", loaded))


def test_installed_entry_points_are_those_of_setup_cfg():
    assert set(distribution("fpga_pool").entry_points) == set(declared_entry_points()), "install fpga_pool anew"


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

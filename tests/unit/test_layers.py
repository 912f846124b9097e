"""The layers hold: imports point downward, siblings do not import each other, and the core stays pure.

The source is analyzed by AST, including imports inside functions and under TYPE_CHECKING.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "fpga_pool"

#: Rooms (the packages below `fpga_pool`) by layer, the lowest first.  A room may import the rooms of lower layers.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"core"}),
    frozenset({"guest", "model"}),
    frozenset({"conf", "drivers", "metrics", "placement", "rpc", "sim", "store", "transfer"}),
    frozenset({"client", "services"}),
    frozenset({"api", "cli", "experiments", "horizon_plugin", "nova_plugin", "osc", "web", "wsgi"}),
)

#: The layer whose rooms never import each other.
ADAPTERS = 2

#: Libraries that only the named rooms may import.
CONFINED: dict[str, frozenset[str]] = {
    "alembic": frozenset({"store"}),
    "django": frozenset({"horizon_plugin"}),
    "eventlet": frozenset(),
    "horizon": frozenset({"horizon_plugin"}),
    "nova": frozenset({"nova_plugin"}),
    "flask": frozenset({"api"}),
    "libvirt": frozenset({"drivers"}),
    "oslo_db": frozenset({"store"}),
    "oslo_limit": frozenset({"services"}),
    "oslo_messaging": frozenset({"rpc"}),
    "keystonemiddleware": frozenset({"api"}),
    "oslo_middleware": frozenset({"api"}),
    "openstack_dashboard": frozenset({"horizon_plugin"}),
    "oslo_policy": frozenset({"api"}),
    "prometheus_client": frozenset({"metrics"}),
    "osc_lib": frozenset({"osc"}),
    "sqlalchemy": frozenset({"store"}),
    # Helpers of the tests, which are not installed.
    "support": frozenset(),
}

#: Rooms without I/O, clock, threads or global random state, and the only libraries that they may import from outside
#: the standard library: those that compute on values.
PURE: dict[str, frozenset[str]] = {
    "core": frozenset({"highspy", "numba", "numpy", "pulp", "scipy", "torch"}),
    "model": frozenset({"jsonschema", "msgspec", "numpy", "scipy"}),
}

#: Rooms that are copied alone to machines with only an old Python: they may use the standard library only.
ALONE: dict[str, tuple[int, int]] = {"guest": (3, 6)}

#: Parts of the standard library that the pure rooms may not import.
IMPURE_MODULES = frozenset(
    {
        "asyncio", "concurrent", "fcntl", "glob", "http", "importlib", "io", "logging", "mmap", "multiprocessing", "os",
        "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver",
        "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
    }
)  # fmt: skip

#: Allowed exceptions: the codec holds a lock while msgspec completes its cached data about a class.
EXCEPTIONS = {("fpga_pool.model.codec", "threading")}

#: Names that the pure rooms may not use, although they may import the module.
IMPURE_NAMES = frozenset(
    {
        "__import__", "input", "open", "print",
        "datetime.date.today", "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow",
        "numpy.fromfile", "numpy.genfromtxt", "numpy.load", "numpy.loadtxt", "numpy.memmap", "numpy.save",
        "numpy.savetxt", "numpy.savez", "numpy.savez_compressed",
        "uuid.uuid1", "uuid.uuid4",
    }
)  # fmt: skip

#: What the pure rooms may use of numpy.random; everything else draws from, or seeds, global state.
PURE_RANDOM = frozenset({"BitGenerator", "Generator", "PCG64", "Philox", "SeedSequence", "default_rng"})

LAYER_OF = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms}


@dataclass(frozen=True)
class Import:
    """One imported module or object by its full dotted name, the local name, and the name that is bound to it."""

    name: str
    line: int
    local: str
    bound: str


def room_of(dotted: str) -> str | None:
    """Return the first component below the package; None for the package itself and for other libraries."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else None


def resolve(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the absolute name of what `from ... import` imports from."""
    if not node.level:
        return node.module or ""
    package = module.split(".") if is_package else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node, without their many expressions."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield child
            yield from statements(child)


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[Import]:
    """Yield every import in the tree."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds a, `import a.b as c` binds c to a.b.
                first = alias.name.split(".")[0]
                yield Import(alias.name, node.lineno, alias.asname or first, alias.name if alias.asname else first)
        elif isinstance(node, ast.ImportFrom):
            base = resolve(node, module, is_package)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield Import(name, node.lineno, alias.asname or alias.name, name)


def forbidden_import(room: str, imported: str) -> str | None:
    """Say why a room may not import this name, or return None."""
    library = imported.split(".")[0]
    if room in ALONE and room_of(imported) != room and library not in sys.stdlib_module_names:
        return f"{room} uses nothing but the standard library"
    if library == PACKAGE:
        return forbidden_room(room, room_of(imported))
    allowed = CONFINED.get(library)
    if allowed is not None and room not in allowed:
        return f"{library} is for {', '.join(allowed) or 'nobody'}"
    if room in PURE and library in IMPURE_MODULES:
        return f"{room} does no I/O, reads no clock and keeps no global state"
    if room in PURE and library not in PURE[room] and library not in sys.stdlib_module_names:
        return f"{room} uses only {', '.join(sorted(PURE[room]))}"
    return None


def forbidden_room(room: str, other: str | None) -> str | None:
    """Say why a room may not import another room, or return None."""
    if other is None or other == room:
        return None
    if other not in LAYER_OF:
        return f"{other} is not in the layer table"
    if LAYER_OF[other] > LAYER_OF[room]:
        return f"{other} (L{LAYER_OF[other]}) is above {room} (L{LAYER_OF[room]})"
    if LAYER_OF[other] == LAYER_OF[room] == ADAPTERS:
        return f"{other} and {room} are siblings"
    return None


def dotted_name(node: ast.expr) -> list[str]:
    """Return the parts of `a.b.c`, or nothing for other expressions."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := dotted_name(node.value)):
        return [*parts, node.attr]
    return []


def impure_uses(tree: ast.AST, bindings: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each use of I/O, clock or global random state."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            if full_name(node.func, bindings) == "numpy.random.default_rng":
                yield node.lineno, "numpy.random.default_rng() without a seed"
        elif isinstance(node, ast.Name | ast.Attribute):
            name = full_name(node, bindings)
            if name in IMPURE_NAMES or is_global_random(name):
                yield node.lineno, name


def full_name(node: ast.expr, bindings: dict[str, str]) -> str:
    """Return the dotted name with its first part replaced by the import that is bound to it."""
    parts = dotted_name(node)
    return ".".join([bindings.get(parts[0], parts[0]), *parts[1:]]) if parts else ""


def is_global_random(name: str) -> bool:
    """Say whether the name is a function of numpy's global generator."""
    parts = name.split(".")
    return parts[:2] == ["numpy", "random"] and len(parts) > 2 and parts[2] not in PURE_RANDOM


def violations(tree: ast.Module, module: str, is_package: bool = False) -> list[str]:
    """Return "line: what, why" for every violation in a module."""
    room = room_of(module)
    found = list(imports_of(tree, module, is_package))
    if room is None:
        return [f"{i.line}: {i.name}, the package itself imports no room" for i in found if room_of(i.name)]
    if room not in LAYER_OF:
        return [f"1: {room} is not in the layer table"]
    problems = [
        f"{i.line}: {i.name}, {why}"
        for i in found
        if (module, i.name) not in EXCEPTIONS and (why := forbidden_import(room, i.name))
    ]
    if room in PURE:
        bindings = {i.local: i.bound for i in found}
        problems += [f"{line}: {name} in {room}" for line, name in impure_uses(tree, bindings)]
    return problems


def modules() -> list[Path]:
    return sorted((ROOT / PACKAGE).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def read(path: Path) -> tuple[list[str], list[Import]]:
    """Return the violations of a module and its top-level imports; the syntax trees of all are too large to keep."""
    tree, name, is_package = ast.parse(path.read_text()), module_name(path), path.name == "__init__.py"
    wrong = violations(tree, name, is_package)
    # Imports inside functions and for types only are executed later or never.
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return wrong, list(imports_of(tree, name, is_package))


def test_every_module_keeps_to_its_layer():
    problems = [f"{path.relative_to(ROOT)}:{problem}" for path in modules() for problem in read(path)[0]]
    assert not problems, "\n".join(problems)


def test_modules_do_not_import_each_other_in_circles():
    paths = {module_name(path): path for path in modules()}
    graph = {}
    for name, path in paths.items():
        # An object belongs to the module that it is imported from.
        found = {one.name if one.name in paths else one.name.rpartition(".")[0] for one in read(path)[1]}
        graph[name] = (found & paths.keys()) - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules


def test_rooms_that_stand_alone_are_read_by_the_oldest_python_that_they_are_for():
    for room, version in ALONE.items():
        for path in (ROOT / PACKAGE / room).rglob("*.py"):
            ast.parse(path.read_text(), feature_version=version)


def test_reads_the_modules_of_this_repository():
    assert ROOT / PACKAGE / "core" / "types.py" in modules()


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("core.x", "import fpga_pool.model.exceptions", "model (L1) is above core (L0)"),
        ("core.x", "from fpga_pool import model", "model (L1) is above core (L0)"),
        ("core.x", "from fpga_pool.model import exceptions", "model (L1) is above core (L0)"),
        ("core.makespan.x", "from ...store import db", "store (L2) is above core (L0)"),
        ("store.x", "def f():\n    from fpga_pool.services import scheduler", "services (L3) is above store (L2)"),
        ("store.x", "try:\n    x\nfinally:\n    import fpga_pool.api", "api (L4) is above store (L2)"),
        ("store.x", "try:\n    x\nexcept E:\n    import fpga_pool.api", "api (L4) is above store (L2)"),
        ("store.x", "for x in y:\n    x\nelse:\n    import fpga_pool.api", "api (L4) is above store (L2)"),
        ("store.x", "match x:\n    case 1:\n        import fpga_pool.api", "api (L4) is above store (L2)"),
        (
            "rpc.x",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fpga_pool.api import app",
            "api (L4) is above rpc (L2)",
        ),
        ("client.x", "import fpga_pool.cli.client.main as cli", "cli (L4) is above client (L3)"),
        ("sim.x", "from fpga_pool.store import db", "store and sim are siblings"),
        ("drivers.slots.x", "from fpga_pool.conf import opts", "conf and drivers are siblings"),
        ("services.x", "import fpga_pool.garage", "garage is not in the layer table"),
        ("garage.x", "", "garage is not in the layer table"),
        ("services.scheduler.x", "import nova.conf", "nova is for nova_plugin"),
        ("services.x", "from sqlalchemy import orm", "sqlalchemy is for store"),
        ("cli.x", "def f():\n    import alembic.command", "alembic is for store"),
        ("api.x", "from oslo_db import exception", "oslo_db is for store"),
        ("cli.x", "from osc_lib.command import command", "osc_lib is for osc"),
        ("services.x", "import eventlet", "eventlet is for nobody"),
        ("experiments.x", "from support.servers import RabbitMQ", "support is for nobody"),
        ("guest.x", "import numpy", "guest uses nothing but the standard library"),
        ("guest.x", "from fpga_pool.model import exceptions", "guest uses nothing but the standard library"),
        ("core.x", "from oslo_utils import timeutils", "core uses only"),
        ("model.x", "import oslo_config.cfg", "model uses only"),
        ("model.x", "import threading", "model does no I/O"),
        ("core.x", "from socket import socket", "core does no I/O"),
        ("core.x", "from time import monotonic", "core does no I/O"),
        ("core.x", "import random", "core does no I/O"),
        ("model.x", "from pathlib import Path", "model does no I/O"),
        ("model.x", "f = open('x')", "open in model"),
        ("model.x", "import datetime\ndatetime.datetime.now()", "datetime.datetime.now in model"),
        ("model.x", "from datetime import datetime as dt\ndt.utcnow()", "datetime.datetime.utcnow in model"),
        ("model.x", "from datetime import datetime\ndatetime.now()", "datetime.datetime.now in model"),
        ("core.x", "import numpy as np\nnp.random.rand(3)", "numpy.random.rand in core"),
        ("core.x", "import numpy.random\nnumpy.random.seed(3)", "numpy.random.seed in core"),
        ("core.x", "from numpy import random as r\nr.shuffle([])", "numpy.random.shuffle in core"),
        ("core.x", "from numpy.random import rand\nrand(3)", "numpy.random.rand in core"),
        ("core.x", "import numpy as np\nrng = np.random.default_rng()", "default_rng() without a seed"),
        ("core.x", "import numpy as np\nnp.load('x')", "numpy.load in core"),
    ],
)
def test_finds_violation(module, source, reason):
    assert [problem for problem in violations(ast.parse(source), f"{PACKAGE}.{module}") if reason in problem]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "core.x",
            "import math\nimport numpy as np\nfrom scipy.optimize import linprog\nfrom fpga_pool.core import types",
        ),
        ("core.x", "import numpy as np\ndef f(rng: np.random.Generator): return rng.random()"),
        ("core.x", "import numpy as np\nrng = np.random.default_rng(7)"),
        ("model.x", "from datetime import datetime, UTC\ndef f(at_s): return datetime.fromtimestamp(at_s, UTC)"),
        ("sim.x", "from fpga_pool.model import lifecycle\nfrom fpga_pool.core import policy\nimport time"),
        ("store.x", "import sqlalchemy\nfrom oslo_db.sqlalchemy import enginefacade\nfrom . import models"),
        ("services.x", "from fpga_pool.store import db\nfrom fpga_pool.conf import opts\nimport threading"),
        ("cli.x", "from fpga_pool.api import app\nfrom fpga_pool.services import scheduler"),
        ("nova_plugin.x", "from nova.scheduler import filters"),
    ],
)
def test_lets_pass(module, source):
    assert violations(ast.parse(source), f"{PACKAGE}.{module}") == []


def test_resolves_relative_imports_of_a_package_from_the_package_itself():
    # In fpga_pool/core/__init__.py one dot is fpga_pool.core, two dots are fpga_pool.
    assert violations(ast.parse("from . import types"), f"{PACKAGE}.core", is_package=True) == []
    assert violations(ast.parse("from .. import store"), f"{PACKAGE}.core", is_package=True)


def test_the_package_itself_imports_no_room():
    assert violations(ast.parse("from fpga_pool.core import types"), PACKAGE, is_package=True)


def test_names_the_line_of_a_violation():
    assert violations(ast.parse("import math\n\nimport time\n"), f"{PACKAGE}.core.x")[0].startswith("3: time")

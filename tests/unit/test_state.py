"""The pure rooms keep no process-wide state: a call may leave nothing in a module that another call finds.

The source is analyzed by AST.  A cache of a function's results by its arguments is no state.  A cache of a function
without arguments is, because it can only keep what the process has chosen or found.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ("core", "model")

CACHES = frozenset({"cache", "lru_cache", "functools.cache", "functools.lru_cache"})
MUTATING = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "difference_update", "extend", "extendleft", "fill",
        "insert", "intersection_update", "pop", "popitem", "popleft", "remove", "reverse", "setdefault",
        "setflags", "sort", "subtract", "symmetric_difference_update", "update",
    }
)  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def kept_state(source: str) -> list[str]:
    """Return "line: what" for every place where a function changes its module."""
    tree = ast.parse(source)
    kept, imported = module_names(tree)
    return [f"{line}: {what}" for line, what in changes(tree, kept, imported)]


def module_names(tree: ast.Module) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a module binds itself, and the names that it imports."""
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    bound = {name for node in tree.body for name in bound_by(node)}
    return frozenset(bound - imported), frozenset(imported)


def bound_by(statement: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds, without those inside of functions and classes."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
        return
    if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        yield statement.id
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.Lambda):
            yield from bound_by(child)


def changes(node: ast.AST, kept: frozenset[str], imported: frozenset[str], inside: bool = False) -> Iterator:
    """Yield line and description of each change of the module's names below a node, unless local names hide them."""
    if isinstance(node, Function):
        yield from cached_without_arguments(node)
        own = own_names(node)
        kept, imported, inside = kept - own, imported - own, True
    elif inside:
        yield from changed_by(node, kept, imported)
    for child in ast.iter_child_nodes(node):
        yield from changes(child, kept, imported, inside)


def own_names(function: Function) -> set[str]:
    """Return the names that are local to a function."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    body = function.body if isinstance(function.body, list) else [function.body]
    declared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    return {each.arg for each in every if each} | {name for node in body for name in bound_by(node)} - declared


def changed_by(node: ast.AST, kept: frozenset[str], imported: frozenset[str]) -> Iterator:
    """Yield line and description if a node changes an object that outlives its function."""
    if isinstance(node, ast.Global):
        yield node.lineno, f"global {', '.join(node.names)}"
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        name = root(node)
        if name in kept | imported:
            yield node.lineno, f"{ast.unparse(node)} is set"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
        name = root(node.func.value)
        if name in kept:
            yield node.lineno, f"{ast.unparse(node.func)}()"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
        name = root(node.args[0])
        if name in kept | imported:
            yield node.lineno, f"{node.func.id} on {name}"


def cached_without_arguments(function: Function) -> Iterator:
    """Yield line and description if a function without arguments caches its result."""
    if isinstance(function, ast.Lambda) or ast.unparse(function.args):
        return
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called) in CACHES:
            yield function.lineno, f"{function.name} keeps its result"


def root(node: ast.expr) -> str:
    """Return the name that a chain of attributes and items begins with; "" for other expressions."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_core_and_model_keep_nothing_for_the_process():
    found = [
        f"{path.relative_to(ROOT)}:{problem}"
        for room in PURE
        for path in sorted((ROOT / "fpga_pool" / room).rglob("*.py"))
        for problem in kept_state(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("chosen = None\ndef choose(x):\n    global chosen\n    chosen = x", "3: global chosen"),
        ("_loaded = {}\ndef load(name):\n    _loaded[name] = 1", "3: _loaded[name] is set"),
        ("_loaded: dict[str, int] = {}\ndef drop(name):\n    del _loaded[name]", "3: _loaded[name] is set"),
        ("_missed = set()\ndef miss(name):\n    if name:\n        _missed.add(name)", "4: _missed.add()"),
        ("class _Choice:\n    fast = True\ndef slow():\n    _Choice.fast = False", "4: _Choice.fast is set"),
        ("from x import kernels\ndef f():\n    kernels.fast = False", "3: kernels.fast is set"),
        ("import a\ndef f():\n    a.b.c += 1", "3: a.b.c is set"),
        ("class C: pass\ndef f():\n    setattr(C, 'x', 1)", "3: setattr on C"),
        ("_counts = []\nclass C:\n    def f(self):\n        return lambda: _counts.append(1)", "4: _counts.append()"),
        ("_seen = {}\ndef f():\n    for _seen['x'] in range(3): pass", "3: _seen['x'] is set"),
        ("from functools import cache\n@cache\ndef fastest():\n    return 1", "3: fastest keeps its result"),
        ("import functools\n@functools.lru_cache(1)\ndef f():\n    return 1", "3: f keeps its result"),
    ],
)
def test_finds_state(source, what):
    assert kept_state(source) == [what]


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {}\nTABLE['x'] = 1\nfor k in 'ab':\n    TABLE.update({k: 1})",
        "TABLE = {'x': 1}\ndef f(x):\n    return TABLE[x]",
        "found = []\ndef f():\n    found = []\n    found.append(1)\n    found[0] = 2",
        "items = []\ndef f(items):\n    items.append(1)",
        "def f():\n    seen = set()\n    def g():\n        seen.add(1)\n    g()",
        "class C:\n    def f(self):\n        self.x = 1",
        "import numpy as np\ndef f(a):\n    np.add(a, 1, out=a)",
        "from functools import cache\n@cache\ndef names(cls):\n    return cls.x",
        "class C:\n    known = {}\ndef f(c):\n    c.known['x'] = 1",
    ],
)
def test_lets_pass(source):
    assert kept_state(source) == []

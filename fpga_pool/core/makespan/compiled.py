"""The compiled kernels, where numba is installed (extra `fast`)."""

from types import ModuleType

_NAMES = ("kernels", "joint_kernels", "polish_kernels")
_loaded: dict[str, ModuleType | None] = {}
#: What plans go without until it is loaded, and what of it they have asked for.
_put_off: set[str] = set()
_missed: set[str] = set()


def kernels() -> ModuleType | None:
    """Return the compiled loops over machines, or None without numba; the first call loads or compiles them."""
    return _module("kernels")


def joint_kernels() -> ModuleType | None:
    """Return the compiled loops over machines and links, or None without numba."""
    return _module("joint_kernels")


def polish_kernels() -> ModuleType | None:
    """Return the compiled local search on reversed time, or None without numba."""
    return _module("polish_kernels")


def compile_all() -> None:
    """Load or compile all kernels now, so that no plan has to wait for it."""
    for name in _NAMES:
        if name not in _loaded:
            _load(name)


def go_without() -> None:
    """Have plans made without kernels until `compile_all` has ended, in whatever thread: none waits for it."""
    _put_off.update(_NAMES)


def missed() -> bool:
    """Say whether a plan went without kernels that could be loaded."""
    return not _missed.issubset(_loaded)


def _module(name: str) -> ModuleType | None:
    if name not in _loaded:
        if name in _put_off:
            _missed.add(name)
            return None
        _load(name)
    return _loaded[name]


def _load(name: str) -> None:
    module: ModuleType | None = None
    try:
        if name == "kernels":
            from fpga_pool.core.makespan import kernels as module
        elif name == "joint_kernels":
            from fpga_pool.core.makespan import joint_kernels as module
        else:
            from fpga_pool.core.makespan import polish_kernels as module
    except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
        pass
    _loaded[name] = module

"""Problem and plan files of batches (numpy `.npz`); doc/formats describes every array.

Files are replaced atomically, so a reader never sees a partial file.
"""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchPlan, BatchProblem
from fpga_pool.model.exceptions import InvalidInput

#: Exceptions that numpy and zipfile raise for damaged files.
DAMAGED = (
    ValueError, EOFError, MemoryError, NotImplementedError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, renamed to `path` at the end, so that a partial file is never read."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


FORMAT_VERSION = 1

#: Kind ("f" = real numbers, "i" = integers) and number of dimensions of each array.
_PROBLEM = {
    "seconds": ("f", 2), "input_bytes": ("i", 1), "requester": ("i", 1), "egress_bps": ("f", 1),
    "responder": ("i", 1), "ingress_bps": ("f", 1),
}  # fmt: skip
#: Optional when read; written only if some job has output.
_RESULTS = {"output_bytes": ("i", 1), "requester_ingress_bps": ("f", 1), "responder_egress_bps": ("f", 1)}
_PROBLEM_OPTIONAL = {
    "ready_s": ("f", 1), "release_s": ("f", 1), "group": ("i", 1), "local_host": ("i", 1), "function": ("i", 1),
    "loaded": ("i", 1), "load_s": ("f", 1), "port": ("i", 1), **_RESULTS,
}  # fmt: skip
_PER_FUNCTION = {"function_output_bytes": ("i", 1)}
_PLAN = (
    "accelerator", "start_s", "segment_job", "segment_begin_s", "segment_end_s", "segment_bps", "makespan_s",
    "lower_bound_s",
)  # fmt: skip
_PLAN_RESULTS = (
    "result_job", "result_begin_s", "result_end_s", "result_bps", "completion_s", "completion_bound_s",
)  # fmt: skip

_Arrays = dict[str, NDArray[Any]]
_Kinds = dict[str, tuple[str, int]]


def read_problem(path: str | Path) -> BatchProblem:
    """Return the problem in the file; raise InvalidInput, which names file and array, if it is not valid."""
    arrays = _read(path, _PROBLEM, _PROBLEM_OPTIONAL | _PER_FUNCTION)
    jobs, accelerators = arrays["seconds"].shape
    lengths = {
        "ready_s": accelerators, "release_s": jobs, "group": jobs, "local_host": len(arrays["egress_bps"]),
        "function": jobs, "loaded": accelerators, "load_s": accelerators, "port": accelerators,
        "output_bytes": jobs,
        "requester_ingress_bps": len(arrays["egress_bps"]), "responder_egress_bps": len(arrays["ingress_bps"]),
    }  # fmt: skip
    for name in lengths.keys() & arrays.keys():
        # BatchProblem treats an empty array as missing; in a file an empty array is an error.
        if arrays[name].shape != (lengths[name],):
            raise InvalidInput(f"{path}: {name}: expected shape {(lengths[name],)}, found {arrays[name].shape}")
    if "function_output_bytes" in arrays:
        arrays["output_bytes"] = _by_function(path, arrays, arrays.pop("function_output_bytes"))
    try:
        return BatchProblem(**arrays)  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidInput(f"{path}: {error}") from None


def _by_function(path: str | Path, arrays: _Arrays, size: NDArray[Any]) -> NDArray[Any]:
    """Return the result size of each job in bytes, shape (J,), from that of each function, shape (F,)."""
    if "function" not in arrays or "output_bytes" in arrays:
        raise InvalidInput(f"{path}: function_output_bytes: requires function, and excludes output_bytes")
    function = arrays["function"]
    if function.size and not 0 <= function.min() <= function.max() < len(size):
        raise InvalidInput(f"{path}: function: index out of range of function_output_bytes, 0..{len(size) - 1}")
    per_job: NDArray[Any] = size[function]
    return per_job


def write_problem(path: str | Path, problem: BatchProblem) -> None:
    """Write the problem with all optional arrays; arrays of results only if some job has output."""
    names = _PROBLEM | _PROBLEM_OPTIONAL
    if not problem.output_bytes.any():
        names = {name: kind for name, kind in names.items() if name not in _RESULTS}
    _write(path, {name: getattr(problem, name) for name in names})


def write_plan(path: str | Path, plan: BatchPlan) -> None:
    """Write the plan; `bound_prices` and the arrays of results only if the plan has them."""
    arrays = {name: np.asarray(getattr(plan, name)) for name in _PLAN}
    if len(plan.bound_prices):
        arrays["bound_prices"] = plan.bound_prices
    if len(plan.result_job):
        arrays |= {name: np.asarray(getattr(plan, name)) for name in _PLAN_RESULTS}
    _write(path, arrays)


def _read(path: str | Path, required: _Kinds, optional: _Kinds) -> _Arrays:
    """Return the known arrays of the file, each with the right kind and number of dimensions."""
    try:
        # Opened here, because np.load does not close a file that turns out not to be an archive.
        with Path(path).open("rb") as stream:
            return _read_stream(path, stream, required, optional)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}") from None


def _read_stream(path: str | Path, stream: IO[bytes], required: _Kinds, optional: _Kinds) -> _Arrays:
    try:
        content = np.load(stream, allow_pickle=False)
    except DAMAGED:
        raise InvalidInput(f"{path}: not an npz file") from None
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise InvalidInput(f"{path}: one bare array, expected an npz file of named arrays")
    with content:
        _check_version(path, _array(path, content, "format_version") if "format_version" in content else np.array(1))
        missing = [name for name in required if name not in content]
        if missing:
            raise InvalidInput(f"{path}: {missing[0]}: missing")
        known = {name: kind for name, kind in (required | optional).items() if name in content}
        arrays = {name: _array(path, content, name) for name in known}
    for name, (kind, dimensions) in known.items():
        arrays[name] = _checked(f"{path}: {name}", arrays[name], kind, dimensions)
    return arrays


def _array(path: str | Path, content: "np.lib.npyio.NpzFile", name: str) -> NDArray[Any]:
    try:
        return np.asarray(content[name])
    except (OSError, *DAMAGED):
        raise InvalidInput(f"{path}: {name}: cannot be read; it is damaged or contains Python objects") from None


def _check_version(path: str | Path, version: NDArray[Any]) -> None:
    if version.shape != () or version.dtype.kind not in "iu" or int(version) < 1:
        raise InvalidInput(f"{path}: format_version: expected one whole number, 1 or more")
    if int(version) > FORMAT_VERSION:
        raise InvalidInput(
            f"{path}: format_version: {int(version)} is newer than {FORMAT_VERSION}, the latest supported version"
        )


def _checked(place: str, array: NDArray[Any], kind: str, dimensions: int) -> NDArray[Any]:
    if array.ndim != dimensions:
        raise InvalidInput(f"{place}: expected {dimensions} dimensions, found {array.ndim}")
    allowed = "iu" if kind == "i" else "fiu"
    if array.size and array.dtype.kind not in allowed:
        wanted = "whole numbers" if kind == "i" else "numbers"
        raise InvalidInput(f"{place}: expected {wanted}, found {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InvalidInput(f"{place}: out of range of signed 64-bit integers")
    array = array.astype(np.int64 if kind == "i" else np.float64, copy=False)
    # There is no other reference to the array. A problem shares a read-only array; copying could take a gigabyte.
    array.setflags(write=False)
    return array


def _write(path: str | Path, arrays: _Arrays) -> None:
    with replacing(path) as place, place.open("wb") as stream:
        np.savez(stream, format_version=np.array(FORMAT_VERSION), **arrays)  # type: ignore[arg-type]

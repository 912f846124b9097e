"""The policy `learned` with its weights: those of the package, or of a file."""

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from fpga_pool.core.cluster.learned import Learned, LearnedParams, Network

_SHIPPED = files("fpga_pool.conf") / "learned.npz"
_FIELDS = ("weights", "low", "high", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFileParams(LearnedParams):
    """Parameters of the policy, including the file of its weights."""

    weights: str = field(default="", metadata={"help": "File of weights (.npz); empty: those of the package."})


class LearnedFromFile(Learned):
    """The policy as an entry point; it reads its weights when it is created."""

    Params: ClassVar[type[LearnedParams]] = LearnedFileParams

    def __init__(self, params: LearnedFileParams | None = None) -> None:
        params = params or LearnedFileParams()
        super().__init__(params, read_network(Path(params.weights)) if params.weights else shipped_network())


def shipped_network() -> Network:
    """Return the network that is part of the package."""
    with _SHIPPED.open("rb") as stream:
        return _read(stream)


def read_network(path: Path) -> Network:
    """Return the network in a file; ValueError says what is wrong with it."""
    try:
        with path.open("rb") as stream:
            return _read(stream)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"weights: {path}: {error}") from None


def write_network(path: Path, network: Network) -> None:
    """Write a network, of at most 16 KB, to a file atomically."""
    new = path.with_suffix(".new.npz")
    np.savez(new, weights=network.weights, low=network.low, high=network.high, limit=np.float64(network.limit))
    new.replace(path)


def _read(stream: IO[bytes]) -> Network:
    with np.load(stream, allow_pickle=False) as arrays:
        missing = [name for name in _FIELDS if name not in arrays]
        if missing:
            raise ValueError(f"no array {missing[0]!r}; expected {', '.join(_FIELDS)}")
        weights, low, high, limit = (arrays[name] for name in _FIELDS)
        return Network(weights=weights, low=low, high=high, limit=float(limit))

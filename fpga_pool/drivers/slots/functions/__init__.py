"""Software models of the accelerator functions, which compute real results for simulated slots and CPU workers.

Each model is registered as an entry point of the group `fpga_pool.function_models`.
"""

from functools import cache
from pathlib import Path
from typing import Protocol, cast

from stevedore.driver import DriverManager
from stevedore.exception import NoMatches

from fpga_pool.model.exceptions import UnknownFunction

GROUP = "fpga_pool.function_models"


class FunctionModel(Protocol):
    """A function that computes the result of an accelerator in software."""

    def __call__(self, source: Path, sink: Path) -> None:
        """Read the whole input file and write the result file. Raises InvalidInput if the input is invalid."""


@cache
def function_model(name: str) -> FunctionModel:
    """Return the model registered under this name. Raises UnknownFunction if there is none."""
    try:
        return cast("FunctionModel", DriverManager(GROUP, name).driver)
    except NoMatches:
        raise UnknownFunction(f"no software model of function {name!r} is installed (group {GROUP})") from None
    except ModuleNotFoundError as error:
        raise UnknownFunction(f"software model of {name!r}: {error}: pip install 'fpga_pool[sim]'") from error

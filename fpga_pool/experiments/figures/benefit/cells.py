"""What figures by catalogue, time to reconfigure and alpha share."""

from collections.abc import Iterable
from dataclasses import dataclass

from fpga_pool.experiments.benefit.cases import ALPHAS, LOAD_S
from fpga_pool.experiments.figures.figure import Panel, Settings


@dataclass(frozen=True, slots=True)
class Cell:
    """One load on one catalogue, with one time to reconfigure."""

    catalogue: str
    load_s: float
    alpha: float

    @property
    def panel(self) -> str:
        """Name its panel."""
        return panel_key(self.catalogue, self.load_s)


def panel_key(catalogue: str, load_s: float) -> str:
    """Name the panel of a catalogue and a time to reconfigure."""
    return f"{catalogue}-{load_s:g}"


def panel_title(catalogue: str, load_s: float) -> str:
    """Say the same for people."""
    return f"catalogue {catalogue.upper()}, loads of {load_s:g} s"


def cells(catalogues: Iterable[str], settings: Settings) -> list[Cell]:
    """Return all panels, place by place."""
    places = settings.thinned(ALPHAS)
    return [Cell(name, load_s, alpha) for name in catalogues for load_s in LOAD_S for alpha in places]


def panels(catalogues: Iterable[str]) -> tuple[Panel, ...]:
    """Return a panel of benefit over alpha for each catalogue and time to reconfigure."""
    return tuple(
        Panel(key=panel_key(name, load_s), title=panel_title(name, load_s), x_label="alpha", y_label="benefit, vCPUs")
        for name in catalogues
        for load_s in LOAD_S
    )

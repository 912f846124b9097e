"""Time models refitted from what was observed (makespan paper, section 2: linear regression)."""

import logging
from collections.abc import Iterable, Iterator

from fpga_pool.core.timemodel import Fit, TimeModel, refit
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exchange import Calibration
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: The catalogue's model counts as so many observed runs, so that a few noisy ones do not overthrow it.
PRIOR_RUNS = 8.0
#: Newest runs that are looked at, per function and board.
WINDOW = 500


class Calibrator:
    """Keeps the stored time models in line with the runs that agents reported."""

    def __init__(self, store: Store, catalogue: Catalogue, clock: Clock) -> None:
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
        self._stored: dict[tuple[str, str], TimeModel] = {}

    def refit(self) -> bool:
        """Refit every model that has runs, and store those that changed."""
        for name, board, _, fitted in self._fits(self._catalogue.functions):
            if self._stored.get((name, board)) != fitted.model:
                self._store.save_time_model(name, board, fitted.model, fitted.samples, self._clock())
                self._stored[name, board] = fitted.model
                LOG.debug("%s on %s: %s from %d runs", name, board, fitted.model, fitted.samples)
        return False

    def report(self, only: str | None = None) -> list[Calibration]:
        """Return catalogue and fit side by side, with the fit's error over the runs it was made from."""
        if only is not None:
            self._catalogue.function(only)
        return [
            Calibration(
                function=name,
                board=board,
                runs=fitted.samples,
                catalogue_a_s=prior.a_s,
                catalogue_b_s_per_byte=prior.b_s_per_byte,
                fitted_a_s=fitted.model.a_s,
                fitted_b_s_per_byte=fitted.model.b_s_per_byte,
                mean_relative_error=fitted.mean_relative_error,
                worst_relative_error=fitted.worst_relative_error,
            )
            for name, board, prior, fitted in self._fits(self._catalogue.functions if only is None else [only])
        ]

    def _fits(self, names: Iterable[str]) -> Iterator[tuple[str, str, TimeModel, Fit]]:
        with self._store.reading() as tx:
            observed = {name: tx.runs(name, newest=WINDOW) for name in sorted(names)}
        for name, boards in observed.items():
            for board, (input_bytes, seconds) in sorted(boards.items()):
                prior = self._catalogue.functions[name].fpga_time.get(board)
                if prior is not None:
                    yield name, board, prior, refit(prior, input_bytes, seconds, prior_weight=PRIOR_RUNS)

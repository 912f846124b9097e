"""Error of models of metrics by the number of measurements: the means of cells, the paper's network and three others.

python -m fpga_pool.experiments.figures.learned.prediction > prediction.csv
"""

import argparse
import csv
import sys
from collections.abc import Callable, Mapping

import numpy as np

from fpga_pool.core.cluster.metrics import CellMeans, Factors, Gaussian, MetricModel
from fpga_pool.core.types import Floats

#: Types and metrics of the paper (section 4.3.1, table 2 and the speedup); measurements per subtask.
TYPES, METRICS, RUNS = 16, 10, 2
#: Number of other types that were fully measured earlier, known to all models; independent causes of their metrics.
HISTORY, RANK = 60, 3
#: Standard deviations: of the part of metrics that the causes do not explain; of subtasks of one type and measurements.
OWN, NOISE = 0.05, 0.1
#: Subtasks of each type; each has two measurements, spread over ten metrics.
SUBTASKS = (1, 2, 3, 10)


def types_of(seed: int) -> tuple[Floats, Floats]:
    """Return the true metrics of `TYPES` types and of the types of the history, (S, N) and (H, N), within 0 and 1."""
    rng = np.random.default_rng(seed)
    causes = rng.normal(0, 0.7, (RANK, METRICS))
    offsets = rng.normal(-0.3, 0.6, METRICS)
    scores = offsets + rng.standard_normal((TYPES + HISTORY, RANK)) @ causes
    rows = 1 / (1 + np.exp(-scores)) + OWN * rng.standard_normal(scores.shape)
    rows = np.clip(rows, 0, 1)
    return rows[:TYPES], rows[TYPES:]


def measurements(true: Floats, subtasks: int, seed: int) -> list[tuple[int, int, float]]:
    """Return (type, metric, value) for two metrics of each subtask, with the subtasks in random order."""
    rng = np.random.default_rng((seed, 1))
    found = []
    for type_ in rng.permutation(np.repeat(np.arange(TYPES), subtasks)).tolist():
        for metric in rng.choice(METRICS, RUNS, replace=False).tolist():
            found.append((type_, metric, float(true[type_, metric] + NOISE * rng.standard_normal())))
    return found


class Boosting:
    """Gradient boosted trees (scikit-learn) on one-hot type and metric and the means of both."""

    def __init__(self, types: int, metrics: int, history: Floats) -> None:
        self._types, self._metrics = types, metrics
        self._cells = [(types + i, m, float(v)) for i, row in enumerate(history) for m, v in enumerate(row)]
        self._predicted: Floats | None = None

    def observe(self, type_: int, metric: int, value: float) -> None:
        """Store a measurement."""
        self._cells.append((type_, metric, value))
        self._predicted = None

    def predict(self, type_: int) -> Floats:
        """Return the metrics of a type, (N,)."""
        if self._predicted is None:
            from sklearn.ensemble import GradientBoostingRegressor  # the import takes long, and no other model needs it

            cells = np.array(self._cells)
            rows, columns, values = cells[:, 0].astype(int), cells[:, 1].astype(int), cells[:, 2]
            size = max(rows.max() + 1, self._types)
            counts = np.bincount(rows, minlength=size)
            means = (np.bincount(rows, values, size) + values.mean()) / (counts + 1)
            metric_means = np.bincount(columns, values, self._metrics) / np.bincount(columns, minlength=self._metrics)
            own = np.isin(np.arange(size), np.arange(self._types))

            def features(at_rows: np.ndarray, at_columns: np.ndarray) -> np.ndarray:
                one_hot = np.eye(self._metrics)[at_columns]
                type_hot = np.eye(size)[at_rows][:, own]
                return np.column_stack([one_hot, type_hot, means[at_rows], metric_means[at_columns]])

            model = GradientBoostingRegressor(n_estimators=60, max_depth=4, random_state=0)
            model.fit(features(rows, columns), values)
            all_rows, all_columns = np.divmod(np.arange(self._types * self._metrics), self._metrics)
            self._predicted = model.predict(features(all_rows, all_columns)).reshape(self._types, self._metrics)
        row: Floats = self._predicted[type_]
        return row


class Network:
    """The paper's network, fitted to all measurements before its first prediction."""

    def __init__(self, types: int, metrics: int, history: Floats) -> None:
        from fpga_pool.core.cluster.dqn import Ncf  # importing torch takes long, too

        self._network = Ncf(types, metrics, history, rng=np.random.default_rng(0), pretrain_after=0)
        self._is_fitted = False

    def observe(self, type_: int, metric: int, value: float) -> None:
        """Pass a measurement to the network."""
        self._network.observe(type_, metric, value)

    def predict(self, type_: int) -> Floats:
        """Return the metrics of a type, (N,)."""
        if not self._is_fitted:
            self._network.fit(600)
            self._is_fitted = True
        return self._network.predict(type_)


MODELS: Mapping[str, Callable[[int, int, Floats], MetricModel]] = {
    "mean of the cell": CellMeans,
    "Gaussian": Gaussian,
    "matrix factorisation": Factors,
    "NCF": Network,
    "boosting": Boosting,
}


def error(name: str, subtasks: int, seed: int) -> float:
    """Return the root mean squared error of a model over all metrics of all types."""
    true, history = types_of(seed)
    model = MODELS[name](TYPES, METRICS, history)
    for type_, metric, value in measurements(true, subtasks, seed):
        model.observe(type_, metric, value)
    predicted = np.array([model.predict(type_) for type_ in range(TYPES)])
    return float(np.sqrt(np.mean((predicted - true) ** 2)))


def main() -> None:
    """Write the table to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="default: %(default)s")
    seeds = range(parser.parse_args().seeds)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("model", *(f"{count} per type" for count in SUBTASKS)))
    for name in MODELS:
        writer.writerow((name, *(f"{np.mean([error(name, count, seed) for seed in seeds]):.3f}" for count in SUBTASKS)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()

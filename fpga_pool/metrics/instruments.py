"""The metrics of one process: recorded when events happen, or read from the process's state at a scrape."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, Summary, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector

from fpga_pool.metrics.table import LABELS, OTHER, SCRAPE_ERRORS, Kind, Metric
from fpga_pool.model.exceptions import InvalidInput

LOG = logging.getLogger(__name__)

#: Environment variable with the directory in which prometheus_client stores the metrics of several processes.
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value read at a scrape, and the values of its labels in the order of the table."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


Reader = Callable[[], Iterable[Sample]]


class Instruments:
    """Counts, observes and exports the metrics of a process; thread-safe.

    Parameters
    ----------
    max_projects
        Number of projects with separate values; all others are combined.

    """

    def __init__(self, max_projects: int = LABELS["project"].limit) -> None:
        self._registry = CollectorRegistry()
        self._limits = {name: label.limit for name, label in LABELS.items()} | {"project": max_projects}
        self._values: dict[str, set[str]] = {name: set() for name in LABELS}
        self._lock = threading.Lock()
        self._recorded: dict[Metric, Any] = {}
        #: Labeled metrics of prometheus_client, by metric and labels.
        self._children: dict[tuple[Metric, tuple[str, ...]], Any] = {}
        self._readers: list[Reader] = []
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def count(self, metric: Metric, *labels: str) -> None:
        """Count one event."""
        self._record(metric, labels).inc()

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add an observation to a histogram or summary."""
        self._record(metric, labels).observe(value)

    def read(self, reader: Reader) -> None:
        """Call `reader` at every scrape; its failure does not affect other readers."""
        self._readers.append(reader)

    def application(self) -> WSGIApplication:
        """Return the WSGI application that answers scrapes."""
        app: WSGIApplication = make_wsgi_app(self._registry)
        return app

    def collect(self) -> Iterator[Family]:
        """Yield all metrics that are read at a scrape instead of recorded."""
        found: dict[Metric, dict[tuple[str, ...], list[float]]] = {}
        for reader in self._readers:
            try:
                samples = list(reader())
            except Exception as error:
                LOG.warning("metrics: some values could not be read: %s", error)
                self.count(SCRAPE_ERRORS)
                continue
            for sample in samples:
                labels = self._bounded(sample.metric, sample.labels)
                found.setdefault(sample.metric, {}).setdefault(labels, []).append(sample.value)
        for metric, values in found.items():
            yield _family(metric, {labels: metric.merged(several) for labels, several in values.items()})

    def _record(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        known = self._children.get((metric, labels))
        if known is not None:
            return known
        with self._lock:
            made = self._recorded.get(metric)
            if made is None:
                made = self._recorded[metric] = _recorded(metric, self._registry)
        bounded = self._bounded(metric, labels)
        child = made.labels(*bounded) if metric.labels else made
        if bounded == labels:  # bounded in number
            self._children[metric, labels] = child
        return child

    def _bounded(self, metric: Metric, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the values of labels; new values beyond a label's limit are replaced by `other`."""
        with self._lock:
            return tuple(self._one_of(name, value) for name, value in zip(metric.labels, values, strict=True))

    def _one_of(self, label: str, value: str) -> str:
        known = self._values[label]
        if value not in known:
            if len(known) >= self._limits[label]:
                return OTHER
            known.add(value)
        return value


def check_directory() -> None:
    """Raise InvalidInput if `PROMETHEUS_MULTIPROC_DIR` is set but is not a writable directory."""
    directory = os.environ.get(DIRECTORY)
    if directory is not None and not (Path(directory).is_dir() and os.access(directory, os.W_OK | os.X_OK)):
        raise InvalidInput(f"{DIRECTORY}: expected a directory in which this process may write, found {directory!r}")


def recorded_by_all() -> WSGIApplication:
    """Return the WSGI application that answers scrapes with the metrics that all processes recorded in the directory.

    Metrics that are read at a scrape, such as the memory of a process, are not included.  Raises InvalidInput if the
    directory does not exist.
    """
    registry = CollectorRegistry()
    try:
        MultiProcessCollector(registry)
    except ValueError:
        found = os.environ.get(DIRECTORY, "")
        raise InvalidInput(f"{DIRECTORY}: expected the directory of the API's processes, found {found!r}") from None
    app: WSGIApplication = make_wsgi_app(registry)
    return app


def _recorded(metric: Metric, registry: CollectorRegistry) -> Any:
    options: dict[str, Any] = {"labelnames": metric.labels, "registry": registry}
    match metric.kind:
        case Kind.COUNTER:
            return Counter(metric.name, metric.help, **options)
        case Kind.HISTOGRAM:
            return Histogram(metric.name, metric.help, buckets=metric.buckets, **options)
        case Kind.SUMMARY:
            return Summary(metric.name, metric.help, **options)
        case _:
            raise ValueError(f"{metric.name}: a {metric.kind} is read at the scrape, not recorded")


def _family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family

"""Metrics as Prometheus reads them."""

import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from fpga_pool.metrics.instruments import Instruments

TIMEOUT_S = 60.0


class Scrape:
    """The result of one scrape."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            self.text = answer.read().decode()
        self._samples = [sample for family in text_string_to_metric_families(self.text) for sample in family.samples]
        self.names = {sample.name for sample in self._samples}

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels."""
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )

    def values(self, name: str, label: str) -> dict[str, float]:
        """Return the sum of the samples for each value of a label."""
        found = {sample.labels[label] for sample in self._samples if sample.name == name}
        return {value: self.total(name, **{label: value}) for value in found}


def values_of(instruments: Instruments) -> dict[tuple[str, ...], float]:
    """Return all samples, keyed by name and label values; the values are in the order of the labels' names."""
    body = b"".join(instruments.application()({"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"}, _start_response))
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def _start_response(*_: object) -> Callable[[bytes], object]:
    return lambda _: None

import pytest

from fpga_pool.metrics.table import LABELS, METRICS, Kind

by_name = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_names_are_unique():
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@by_name
def test_a_name_says_unit_and_kind(metric):
    assert metric.name.startswith("fpga_pool_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    units = [unit for unit in ("seconds", "bytes", "ratio") if metric.name.removesuffix("_total").endswith(f"_{unit}")]
    assert units == ([metric.unit] if metric.unit else [])


@by_name
def test_labels_are_described_and_limited(metric):
    assert set(metric.labels) <= LABELS.keys()
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)


def test_every_label_is_used():
    assert {label for metric in METRICS for label in metric.labels} == LABELS.keys()

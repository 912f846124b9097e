"""The dashboard and the alerts use metrics and labels that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fpga_pool.metrics.table import METRICS, Kind

ETC = Path(__file__).parents[3] / "etc" / "fpga_pool"

DASHBOARD = json.loads((ETC / "grafana-dashboard.json").read_text())
(ALERTS,) = yaml.safe_load((ETC / "prometheus-alerts.yaml").read_text())["groups"]

#: The suffixes of the series that Prometheus stores for a metric.
SUFFIXES = {
    Kind.COUNTER: ("",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
    Kind.SUMMARY: ("_sum", "_count"),
}
SERIES = {metric.name + suffix: metric for metric in METRICS for suffix in SUFFIXES[metric.kind]}

EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in ALERTS["rules"]} | {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}

each = pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())


@each
def test_an_expression_names_metrics_and_labels_of_the_table(expression):
    series = set(re.findall(r"fpga_pool_\w+", expression))
    assert series <= SERIES.keys()
    if not series:
        assert re.search(r"\bup\b|\bprocess_", expression)
        return
    known = {"le"} | {label for name in series for label in SERIES[name].labels}
    grouped = {label.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(",")}
    matched = set(re.findall(r"[{,](\w+)[=!]", expression))
    assert grouped | matched <= known


@each
def test_a_counter_is_never_compared_without_a_rate(expression):
    for name in set(re.findall(r"fpga_pool_\w+", expression)):
        if SERIES[name].kind is not Kind.GAUGE:
            assert re.search(rf"(rate|increase)\({name}", expression)


def test_every_metric_is_shown_by_the_dashboard():
    shown = {
        SERIES[name]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"fpga_pool_\w+", target["expr"])
    }
    missing = {metric.name for metric in METRICS} - {metric.name for metric in shown}
    # Details for a closer inspection, and metrics that an alert covers.
    assert missing == {
        "fpga_pool_agent_connections",
        "fpga_pool_agent_flows",
        "fpga_pool_agent_jobs",
        "fpga_pool_agent_slots",
        "fpga_pool_agent_streams_total",
        "fpga_pool_scrape_errors_total",
    }


@pytest.mark.parametrize("rule", ALERTS["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_says_what_has_happened_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "action"}

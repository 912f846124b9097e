"""The pages on scenarios list exactly the keys of every table, with their defaults."""

import dataclasses
import re
from pathlib import Path

import pytest
from oslo_config import cfg

from fpga_pool.conf.opts import register_opts
from fpga_pool.sim.cluster import tables as cluster
from fpga_pool.sim.scenario import tables
from fpga_pool.sim.scenario.values import Spread

USER = Path(__file__).parents[3] / "doc" / "source" / "user"
#: The tables by heading of the page on scenarios of pools.
SECTIONS = {
    "``[pool]``": tables.PoolTable,
    "``[scheduler]``": tables.SchedulerTable,
    "``[agent]``": tables.AgentTable,
    "``[delays]``": tables.DelaysTable,
    "``[hosts.NAME]``": tables.HostTable,
    "Work: keys that all kinds have": tables.Group,
    "Work on slots: keys of inputs": tables.Inputs,
    "``[[batches]]``": tables.BatchGroup,
    "``[[tasks]]``": tables.TaskGroup,
    "``[[gangs]]``": tables.GangGroup,
    "``[[instances]]``": tables.InstanceGroup,
    "``[[events]]``": tables.EventTable,
}


#: The tables by heading of the page on scenarios of clusters.
WORLDS = {
    "``[run]``": cluster.RunTable,
    "``[estimates]``": cluster.EstimatesTable,
    "``[nodes.NAME]``": cluster.NodeTable,
    "``[subtasks.NAME]``": cluster.SubtaskTable,
    "``[pipelines.NAME]``": cluster.PipelineTable,
    "``[[arrivals]]``": cluster.ArrivalTable,
    "``[[events]]``": cluster.EventTable,
}
PLACES = [(page, *place) for page, places in (("scenarios", SECTIONS), ("worlds", WORLDS)) for place in places.items()]


def told(page, heading):
    """Return the keys of a section's first table, with their defaults."""
    text = (USER / f"{page}.rst").read_text()
    section = text[text.index(f"\n{heading}\n") :]
    section = section[: re.search(r"\n(-{4,}|={4,})\n(?s:.*?)\n(-{4,}|={4,})\n|\Z", section[5:]).end() + 5]
    table = section[section.index("list-table") :].split("\n\n", 2)[1]
    rows = [[cell.strip() for cell in re.split(r"\n     -", row)] for row in re.split(r"(?:^|\n)   \* - ", table)[2:]]
    return {row[0].strip("`"): row[2] for row in rows}


def shown(field):
    """Return how the page shows a default."""
    if field.metadata["shown_default"]:
        return field.metadata["shown_default"]
    value = field.default
    if value is dataclasses.MISSING:
        return ""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Spread):
        return f"{value.low:g}"
    if isinstance(value, tuple):
        return str(list(value))
    return str(value) if isinstance(value, str | int) else f"{value:g}"


@pytest.mark.parametrize(("page", "heading", "table"), PLACES)
def test_keys_and_defaults_are_those_of_the_code(page, heading, table):
    inherited = {name for base in table.__mro__[1:-1] for name in base.__dataclass_fields__}
    keys = {
        field.name: shown(field)
        for field in dataclasses.fields(table)
        if "kind" in field.metadata and field.name not in inherited
    }
    assert told(page, heading) == keys


@pytest.mark.parametrize(("group", "table"), [("scheduler", tables.SchedulerTable), ("agent", tables.AgentTable)])
def test_defaults_are_those_of_the_live_pool(group, table):
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for field in dataclasses.fields(table):
        assert getattr(conf[group], field.name) == field.default, field.name


@pytest.mark.parametrize(("group", "table"), [("scheduler", tables.SchedulerTable), ("agent", tables.AgentTable)])
def test_the_least_values_are_those_of_the_live_pool(group, table):
    conf = cfg.ConfigOpts()
    register_opts(conf)
    for field in dataclasses.fields(table):
        least = getattr(conf._get_opt_info(field.name, group)["opt"].type, "min", None)
        if least is not None:
            read = field.metadata["kind"].read
            assert read(least) == least, field.name
            with pytest.raises(ValueError):  # noqa: PT011  # that of a kind says nothing
                read(least - 1 if isinstance(field.default, int) else 0.99 * least - 1e-9)

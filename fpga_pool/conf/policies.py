"""Scheduling policies by name, from the entry points of any installed package."""

from importlib.metadata import entry_points
from typing import Any

from stevedore import driver, exception

from fpga_pool.core.policy import GROUPS
from fpga_pool.model.exceptions import InvalidInput


def policy_names(group: str) -> list[str]:
    """Return the names of the policies of a group (a key of `fpga_pool.core.policy.GROUPS`), sorted; load none."""
    return sorted(entry_points(group=GROUPS[group]).names)


def load_policy(group: str, name: str) -> Any:
    """Return the policy of that name, made with its default parameters; InvalidInput names those there are."""
    known = policy_names(group)
    if name not in known:
        raise InvalidInput(f"policy {name!r}: no such {group} policy; there is: {', '.join(known) or 'none'}")
    try:
        return driver.DriverManager(GROUPS[group], name, invoke_on_load=True).driver
    except exception.MultipleMatches:
        raise InvalidInput(f"policy {name!r}: more than one {group} policy of this name is installed") from None

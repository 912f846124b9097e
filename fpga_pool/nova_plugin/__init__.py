"""L4: filters and weighers for nova-scheduler, discovered by entry points of the groups named here.

nova.conf names the two functions of this module, so that all installed classes are loaded:

    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = fpga_pool.nova_plugin.all_filters
    weight_classes = nova.scheduler.weights.all_weighers,fpga_pool.nova_plugin.all_weighers
"""

from typing import Any

from stevedore import ExtensionManager

FILTERS, WEIGHERS = "fpga_pool.filters", "fpga_pool.weighers"


def all_filters() -> list[type[Any]]:
    """Return the filters that are installed for the pool."""
    return _classes(FILTERS)


def all_weighers() -> list[type[Any]]:
    """Return the weighers that are installed for the pool."""
    return _classes(WEIGHERS)


def _classes(group: str) -> list[type[Any]]:
    """Return the classes of a group of entry points; raises ImportError, which stops the service, if one fails."""
    found: ExtensionManager[Any] = ExtensionManager(group, on_load_failure_callback=_refuse)
    return [extension.plugin for extension in found]


def _refuse(_: Any, entry_point: Any, error: BaseException) -> None:
    install = ": pip install 'fpga_pool[nova]'" if isinstance(error, ModuleNotFoundError) else ""
    raise ImportError(f"{entry_point.group}: {entry_point.name} cannot be loaded: {error}{install}") from error

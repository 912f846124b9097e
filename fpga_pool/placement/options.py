"""[placement]: where Placement is, and who the pool is there."""

from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException, MissingAuthPlugin
from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.placement.client import PlacementClient

GROUP = cfg.OptGroup(
    "placement",
    title="Placement",
    help="How the schedulers reach Placement, as in nova.conf. Without auth_type and auth_section the pool has nothing "
    "to do with Placement: virtual machines then get any slots of their host that fit.",
)
#: How long an answer may take where nothing is configured, in seconds: a boot waits for one.
TIMEOUT_S = 5


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return the options for the sample configuration."""
    options = [
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    return [(GROUP, options)]


def open_placement(conf: cfg.ConfigOpts) -> PlacementClient | None:
    """Return the configured Placement; None where the pool is to do without; InvalidInput says what is wrong."""
    name = GROUP.name
    loading.register_auth_conf_options(conf, name)
    loading.register_session_conf_options(conf, name)
    loading.register_adapter_conf_options(conf, name, include_deprecated=False)
    conf.set_default("service_type", "placement", name)
    conf.set_default("valid_interfaces", ["internal", "public"], name)
    conf.set_default("timeout", TIMEOUT_S, name)
    if not conf.placement.auth_type and not conf.placement.auth_section:
        return None
    try:
        auth = loading.load_auth_from_conf_options(conf, name)
        session = loading.load_session_from_conf_options(conf, name, auth=auth)
        return PlacementClient(loading.load_adapter_from_conf_options(conf, name, session=session, auth=auth))
    except (ClientException, MissingAuthPlugin, ValueError) as error:
        raise InvalidInput(f"[placement]: {error}") from error

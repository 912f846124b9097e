"""[nova]: the cloud, and the account with which the pool creates servers."""

from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException, MissingAuthPlugin
from openstack.connection import Connection
from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

GROUP = cfg.OptGroup(
    "nova",
    title="Nova",
    help="Credentials with which agents whose gang_runner is nova access Keystone, Nova, Glance and Neutron, as in "
    "the configuration of other services. The project owns the servers. Schedulers with [scheduler] tier_migrations "
    "request live migrations with them, which Nova allows administrators.",
)
#: How long an answer may take where nothing is configured, in seconds.
TIMEOUT_S = 30
#: How often a question is asked again that was not answered; what changes something is asked for once.
CONNECT_RETRIES = 2
#: What of an adapter is configured: services are several, so none of what names one of them.
_WHERE = ("region-name", "valid-interfaces")


def list_opts() -> list[tuple[cfg.OptGroup, list[Any]]]:
    """Return the options for the sample configuration."""
    options = [
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_session_conf_options(),
        *_place_options(),
    ]
    return [(GROUP, options)]


def _place_options() -> list[Any]:
    options = loading.get_adapter_conf_options(include_deprecated=False)
    return [option for option in options if option.name in _WHERE]


def log_in(conf: cfg.ConfigOpts) -> Connection:
    """Return the cloud as configured, of which nothing is asked yet; InvalidInput says what is wrong."""
    name = GROUP.name
    loading.register_auth_conf_options(conf, name)
    loading.register_session_conf_options(conf, name)
    conf.register_opts(_place_options(), group=name)
    conf.set_default("timeout", TIMEOUT_S, name)
    group = conf[name]
    if not group.auth_type and not group.auth_section:
        who = "[agent] gang_runner = nova and by [scheduler] tier_migrations"
        raise InvalidInput(f"[{name}] auth_type: missing; required by {who}")
    interfaces = group.valid_interfaces or ["internal", "public"]
    retries = {f"{service}_connect_retries": CONNECT_RETRIES for service in ("compute", "image", "network")}
    try:
        auth = loading.load_auth_from_conf_options(conf, name)
        session = loading.load_session_from_conf_options(conf, name, auth=auth)
        return Connection(session=session, region_name=group.region_name, interface=interfaces, **retries)
    except (ClientException, MissingAuthPlugin, ValueError) as error:
        raise InvalidInput(f"[{name}]: {error}") from error

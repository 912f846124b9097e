"""The configuration files of the services, as an operator would write them by hand."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.experiments.embedded import Options, config_text
from support.cloud.site import ADMIN, REGION, SERVICE, Site

#: Directory of the configuration files that the packages ship.
_SHIPPED = Path(sys.prefix) / "etc"
#: Definitions of request pipelines, which are used as the packages ship them.
PASTE_FILES = ("glance/glance-api-paste.ini", "neutron/api-paste.ini", "nova/api-paste.ini")


#: Nova's state as processes on a libvirt compute see it: the disks of guests have the same paths on all computes.
NOVA_STATE = Path("/var/lib/nova")
#: Two guests share a pCPU that carries tiers; the second option is for Nova's record of a new compute node.
_TWO_PER_PCPU = {"cpu_allocation_ratio": 2.0, "initial_cpu_allocation_ratio": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """How guests migrate to a libvirt compute: its address, the socket of its libvirtd, and its network namespace."""

    address: str
    socket: Path
    network: Path | None


def write_settings(site: Site, database_url: str, transport_url: str, arrivals: Mapping[str, Arrivals]) -> None:
    """Write every file again, so that a changed shape of the cloud or version of the packages takes effect.

    `arrivals` describes, by host, the libvirt computes between which guests migrate.
    """
    for name in PASTE_FILES:
        target = settings_file(site, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_SHIPPED / name, target)
    write_files(site, _files(site, database_url, transport_url, arrivals))
    for each in arrivals.values():
        link = _arrivals_directory(site) / each.address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(each.socket)


def write_files(site: Site, files: Mapping[str, Options]) -> None:
    """Write configuration files; only their owner may read them, because they contain passwords."""
    for name, options in files.items():
        target = settings_file(site, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(0o600)
        target.write_text(config_text(options))


def make_directories(site: Site) -> None:
    """Make the directories that services expect to find."""
    for host in site.fakes:
        (site.directory / "nova" / host / "instances").mkdir(parents=True, exist_ok=True)


def settings_file(site: Site, name: str) -> Path:
    """Return the path of a configuration file or directory."""
    return site.directory / "etc" / name


def _arrivals_directory(site: Site) -> Path:
    """Return the directory of links to the libvirtd of each address: Nova knows only the address."""
    return site.directory / "servers" / "arrivals"


def _files(site: Site, database_url: str, transport_url: str, arrivals: Mapping[str, Arrivals]) -> dict[str, Options]:
    files = {
        "keystone/keystone.conf": _keystone(site, database_url),
        "placement/placement.conf": _placement(site, database_url),
        "glance/glance-api.conf": _glance(site, database_url),
        "neutron/neutron.conf": _neutron(site, database_url, transport_url),
        "neutron/ml2.ini": _ml2(),
        "nova/nova.conf": _nova(site, database_url, transport_url),
    }
    files |= {f"nova/{host}.conf": {"DEFAULT": _compute(site, host)} for host in site.fakes}
    return files | {f"nova/{host}.conf": _libvirt_compute(site, host, arrivals.get(host)) for host in site.libvirts}


def account(site: Site) -> Mapping[str, object]:
    """Return the options with which a service logs in to Keystone."""
    return {
        "auth_type": "password",
        "auth_url": site.endpoint("keystone"),
        "username": ADMIN,
        "password": site.password,
        "project_name": ADMIN,
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": REGION,
    }


def tokens(site: Site) -> Options:
    """Return the options with which a service checks the tokens of its callers."""
    return {
        "keystone_authtoken": {
            "www_authenticate_uri": site.endpoint("keystone"),
            "service_token_roles_required": "true",
            "service_token_roles": SERVICE,
            **account(site),
        }
    }


def _locks(site: Site) -> Options:
    return {"oslo_concurrency": {"lock_path": site.directory / "locks"}}


def _keystone(site: Site, database_url: str) -> Options:
    keys = {"key_repository": site.directory / "keys" / "fernet"}
    return {
        "database": {"connection": f"{database_url}/keystone"},
        # Receipts are not used, but Keystone looks for their keys, too, when it starts.
        "fernet_tokens": keys,
        "fernet_receipts": keys,
        "credential": {"key_repository": site.directory / "keys" / "credential"},
        # The passwords are random, so slow hashing would protect nothing, and each service logs in often.
        "identity": {"password_hash_rounds": 4},
        # The token of every request to another service is validated; the single process can use a cache in memory.
        "cache": {"enabled": "true", "backend": "oslo_cache.dict"},
    }


def _placement(site: Site, database_url: str) -> Options:
    return {
        "placement_database": {"connection": f"{database_url}/placement"},
        "api": {"auth_strategy": "keystone"},
        **tokens(site),
    }


def _glance(site: Site, database_url: str) -> Options:
    images = site.directory / "images"
    return {
        "DEFAULT": {"enabled_backends": "files:file"},
        "database": {"connection": f"{database_url}/glance"},
        "glance_store": {"default_backend": "files"},
        "files": {"filesystem_store_datadir": images / "store"},
        "os_glance_staging_store": {"filesystem_store_datadir": images / "staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": images / "tasks"},
        "paste_deploy": {"flavor": "keystone", "config_file": settings_file(site, "glance/glance-api-paste.ini")},
        **_locks(site),
        **tokens(site),
    }


def _neutron(site: Site, database_url: str, transport_url: str) -> Options:
    return {
        "DEFAULT": {
            "state_path": site.directory / "neutron",
            "api_paste_config": settings_file(site, "neutron/api-paste.ini"),
            "core_plugin": "ml2",
            "service_plugins": "",
            "transport_url": transport_url,
            # A port is active as soon as it is bound, so Nova need not be notified.
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
            "rpc_workers": 0,
        },
        "database": {"connection": f"{database_url}/neutron"},
        **_locks(site),
        **tokens(site),
    }


def _ml2() -> Options:
    return {
        "ml2": {
            "type_drivers": "local",
            "tenant_network_types": "local",
            "mechanism_drivers": "fpga_pool_tap",
            "extension_drivers": "port_security",
        }
    }


def _nova(site: Site, database_url: str, transport_url: str) -> Options:
    login = account(site)
    return {
        "DEFAULT": {
            "my_ip": "127.0.0.1",
            "state_path": site.directory / "nova",
            "transport_url": transport_url,
            "compute_driver": "fake.AcceleratedFakeDriver",
            "vif_plugging_is_fatal": "false",
            "vif_plugging_timeout": 0,
            "graceful_shutdown_timeout": 10,
        },
        "api": {"local_metadata_per_cell": "false"},
        "wsgi": {"api_paste_config": settings_file(site, "nova/api-paste.ini")},
        "api_database": {"connection": f"{database_url}/nova_api"},
        "database": {"connection": f"{database_url}/nova_cell1"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 2, "discover_hosts_in_cells_interval": 5},
        "vnc": {"enabled": "false"},
        "filter_scheduler": {
            "available_filters": ("nova.scheduler.filters.all_filters", "fpga_pool.nova_plugin.all_filters"),
            # Our filter is the first: it orders the allocations from which the others choose.
            "enabled_filters": "FpgaPoolSlotFilter,FpgaPoolTierFilter,ComputeFilter,ComputeCapabilitiesFilter,"
            "ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter",
            "weight_classes": "nova.scheduler.weights.all_weighers,fpga_pool.nova_plugin.all_weighers",
        },
        "fpga_pool": {"transport_url": transport_url, "key": site.directory / "keys" / "fpga_pool" / "nova.pem"},
        "notifications": {"notification_format": "versioned"},
        "oslo_messaging_notifications": {"driver": "messagingv2"},
        "placement": login,
        "neutron": login,
        "glance": login,
        "service_user": {"send_service_user_token": "true", **login},
        **_locks(site),
        **tokens(site),
    }


def _compute(site: Site, host: str) -> Mapping[str, object]:
    return {"host": host, "state_path": site.directory / "nova" / host}


def _libvirt_compute(site: Site, host: str, arrivals: Arrivals | None) -> Options:
    helper = f"{sys.prefix}/bin/privsep-helper"
    if arrivals is not None and arrivals.network:
        helper = f"nsenter --net={arrivals.network} -- {helper}"  # it makes the network devices of guests
    files = " ".join(f"--config-file {settings_file(site, f'nova/{name}.conf')}" for name in ("nova", host))
    migration = {}
    if arrivals is not None:
        migration = {
            "live_migration_inbound_addr": arrivals.address,
            "live_migration_uri": f"qemu+unix:///system?socket={_arrivals_directory(site)}/%s",
        }
    default = {"host": host, "state_path": NOVA_STATE, "compute_driver": "libvirt.LibvirtDriver"}
    tiers = {"compute": {"cpu_shared_set": site.processors(host)}} if site.tiers else {}
    return {
        "DEFAULT": {**default, **_TWO_PER_PCPU} if site.tiers else default,
        **tiers,
        # Emulation, because this machine may be a virtual machine itself.
        "libvirt": {"virt_type": "qemu", "cpu_mode": "none", **migration},
        "privsep": {"helper_command": f"{helper} {files}"},
        "nova_sys_admin": {"helper_command": f"{helper} {files}"},
    }

"""The pool of the cloud: scheduler, API, and an agent with simulated cards beside each compute."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from keystoneauth1.adapter import Adapter
from openstack import exceptions

from fpga_pool.experiments.embedded import Options
from fpga_pool.model.flavor import RESOURCE_CLASS
from support.cloud.first_use import GANG_FLAVOR, IMAGE, NETWORK
from support.cloud.programs import BIN, Program, api_program, guests_directory, hook_socket
from support.cloud.schemas import run
from support.cloud.settings import account, settings_file, tokens, write_files
from support.cloud.site import DIRECTORY_VARIABLE, POOL, Site
from support.servers import Libvirt, MariaDB

DATABASE = "fpga_pool"
#: The configuration file that all processes of the pool read.
POOL_FILE = "fpga_pool/fpga_pool.conf"
BOARD = "kintex7"
CARDS = 4
#: Largest number of concurrent migrations of servers of tier `auto`.
TIER_MIGRATIONS = 2

#: The first microversion that selects candidates by traits of their roots.
PLACEMENT_VERSION = "1.35"

#: The socket on which the hook of a libvirt compute asks the agent, as libvirtd sees it.
HOOK_SOCKET = "/run/fpga_pool/agent.sock"
#: The hook that libvirt runs before a guest starts; it belongs to the sources from which the pool is installed.
HOOK = Path(__file__).parents[3] / "etc" / "fpga_pool" / "libvirt-qemu-hook"
HOOK_NAME = "fpga_pool"


def agent(host: str) -> str:
    """Return the name of the agent's process on a compute host."""
    return f"fpga-pool-agent-{host}"


def pool_programs(site: Site) -> dict[str, Program]:
    """Return the pool's processes by name."""
    found = {"fpga-pool-scheduler": _program(site, "scheduler", "scheduler")}
    files = {"OS_FPGA_POOL_CONFIG_FILES": str(settings_file(site, POOL_FILE))}
    found["fpga-pool-api"] = replace(api_program(site, POOL), environment=files)
    return found | {agent(host): _program(site, "agent", host) for host in (*site.fakes, *site.libvirts)}


def _program(site: Site, service: str, name: str) -> Program:
    files = [f"--config-file={settings_file(site, f'fpga_pool/{each}.conf')}" for each in ("fpga_pool", name)]
    return Program([str(BIN / f"fpga-pool-{service}"), *files])


def write_pool_settings(site: Site, database: MariaDB, transport_url: str, libvirt_names: Mapping[str, str]) -> None:
    """Write the pool's configuration files, and create its database, which is still empty.

    `libvirt_names` are the names that libvirt gives to the computes, by host.
    """
    options: dict[str, Options] = {"fpga_pool": _common(site, database.url, transport_url)}
    state = {"state_dir": site.directory / "fpga_pool" / "scheduler"}
    options["scheduler"] = {"scheduler": state, "nova": account(site)}
    options |= {host: _fake_host(site, host) for host in site.fakes}
    options |= {host: _libvirt_host(site, host, libvirt_names[host]) for host in site.libvirts}
    write_files(site, {f"fpga_pool/{name}.conf": groups for name, groups in options.items()})
    for host in site.fakes:
        guests_directory(site, host).mkdir(parents=True, exist_ok=True)
    database.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")


def prepare_pool(site: Site) -> None:
    """Do an operator's one-time tasks: create schema, keys and bitstreams, and enroll agents, as far as missing."""
    manage = ["fpga-pool-manage", f"--config-file={settings_file(site, POOL_FILE)}"]
    keys = keys_directory(site)
    run(site, *manage, "db", "sync")
    if not keys.exists():
        run(site, *manage, "keys", "create", "--directory", str(keys))
        run(site, *manage, "bitstreams", "stock", "--board", BOARD, "--key", str(keys / "bitstreams.pem"))
        hosts = [*site.fakes, *site.libvirts]
        codes = json.loads(run(site, *manage, "host", "enroll", "-f", "json", *hosts))
        for one in codes:
            with settings_file(site, f"fpga_pool/{one['host']}.conf").open("a") as file:
                file.write(f"[agent]\nenrolment_code = {one['enrolment_code']}\n")


def first_vm_environment(site: Site) -> dict[str, str]:
    """Return the variables for clients and doc/source/admin/first-vm/first-vm.sh besides the administrator's login."""
    hooks = Libvirt(site.directory / "servers").directory / "etc" / "hooks" / "qemu.d"
    return {
        DIRECTORY_VARIABLE: str(site.directory),
        "OS_CLIENT_CONFIG_FILE": str(site.clouds_file),
        "FPGA_POOL_CONF": str(settings_file(site, POOL_FILE)),
        "FPGA_POOL_KEYS": str(keys_directory(site)),
        "FPGA_POOL_SHIPPED": str(HOOK.parent),
        "FPGA_POOL_HOOK": str(hooks / HOOK_NAME),
        "SYSTEMCTL": str(HOOK.parents[2] / "tools" / "all-in-one"),
        "IMAGE": IMAGE,
        "NETWORK": NETWORK,
        "BOARD": BOARD,
        "RAM_MIB": "64",
    }


def hosts_with_slots(placement: Adapter) -> int:
    """Return how many enabled compute nodes have free slots and memory according to Placement."""
    asked = {"resources": f"{RESOURCE_CLASS}:1,MEMORY_MB:1", "root_required": "!COMPUTE_STATUS_DISABLED"}
    answer = placement.get("/allocation_candidates", params=asked, microversion=PLACEMENT_VERSION)
    exceptions.raise_from_response(answer)
    return len({provider["root_provider_uuid"] for provider in answer.json()["provider_summaries"].values()})


def keys_directory(site: Site) -> Path:
    """Return the directory of the pool's keys."""
    return site.directory / "keys" / "fpga_pool"


def _common(site: Site, database_url: str, transport_url: str) -> Options:
    keys = keys_directory(site)
    return {
        "DEFAULT": {"transport_url": transport_url},
        "database": {"connection": f"{database_url}/{DATABASE}"},
        "placement": account(site),
        "nova_notifications": {"transport_url": transport_url},
        "scheduler": {
            "token_key": keys / "tokens.pem",
            "api_public_key": keys / "api.pub",
            "nova_public_key": keys / "nova.pub",
            "tier_migrations": TIER_MIGRATIONS if site.tiers else 0,
        },
        "api": {"key": keys / "api.pem"},
        **tokens(site),
        "agent": {
            "bitstream_library": site.directory / "fpga_pool" / "bitstreams",
            "bitstream_public_key": keys / "bitstreams.pub",
            "token_public_key": keys / "tokens.pub",
            "data_address": "127.0.0.1",
            "data_port": 0,
            "egress_mbps": 1000,
            "ingress_mbps": 1000,
            "enclosure": f"box0 line {','.join(f'sim{card}' for card in range(CARDS))}",
        },
        "driver_simulated": {"board": BOARD, "cards": CARDS},
    }


def _fake_host(site: Site, host: str) -> Options:
    guests = {"guest_driver": "simulated", "simulated_guests_dir": guests_directory(site, host)}
    return {"agent": {**_host(site, host), **guests, "hook_socket": hook_socket(site, host)}}


def _libvirt_host(site: Site, host: str, libvirt_name: str) -> Options:
    # Nova's name of the compute node is libvirt's name of the machine.
    guests = {"guest_driver": "libvirt", "hook_socket": HOOK_SOCKET, "node": libvirt_name}
    options: dict[str, object] = {**_host(site, host), **guests, "egress_driver": "tc"}
    if not Libvirt.control_groups():
        return {"agent": options}
    processors = site.processors(host)
    if site.tiers:
        files = {"nova_conf": settings_file(site, f"nova/{host}.conf")}
        return {"agent": options, "tiers": {"driver": "libvirt", "pcpus": processors, **files}}
    gangs = {"gang_runner": "nova", "gang_processors": processors}
    machines = {"flavor": GANG_FLAVOR, "default_image": IMAGE, "networks": NETWORK}
    return {"agent": {**options, **gangs}, "runner_nova": machines, "nova": account(site)}


def _host(site: Site, host: str) -> dict[str, object]:
    return {"host": host, "state_dir": site.directory / "fpga_pool" / host}

"""The description of a cloud: directory, ports, password and computes, which last as long as the directory."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fpga_pool.model.exceptions import NotFound
from support.servers.server import free_ports

REGION = "RegionOne"
ADMIN = "admin"
#: Role of the services' accounts; Neutron lets no other account delete the port of a virtual machine.
SERVICE = "service"

#: Name of the pool among the services.
POOL = "fpga_pool"
#: Environment variable that names the directory of the cloud.
DIRECTORY_VARIABLE = "FPGA_POOL_CLOUD_DIRECTORY"
#: Name of the cloud in clouds.yaml.
CLOUD = "all-in-one"

#: Type in Keystone's catalogue, WSGI module of the API, and path of the endpoint, by service.
APIS: Mapping[str, tuple[str, str, str]] = {
    "keystone": ("identity", "keystone.wsgi.api", "/v3"),
    "placement": ("placement", "placement.wsgi.api", ""),
    "glance": ("image", "glance.wsgi.api", ""),
    "neutron": ("network", "neutron.wsgi.api", ""),
    "nova": ("compute", "nova.wsgi.osapi_compute", "/v2.1"),
    POOL: ("fpga", "fpga_pool.wsgi.api", ""),
}


#: Number of pCPUs for gangs or tiers, if this machine has as many; the libvirt computes share them out in turn.
PROCESSORS = 2

#: Range of the APIs' ports, which are chosen before those of the servers.
PORTS = range(12_000, 16_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The description of a cloud, without the addresses of RabbitMQ and MariaDB, which their servers know."""

    directory: Path
    ports: Mapping[str, int]
    password: str
    fake_computes: int
    libvirt_computes: int
    #: Whether the pCPUs of libvirt computes carry tiers, not gangs.
    tiers: bool = False

    @classmethod
    def open(cls, directory: Path) -> "Site":
        """Return the cloud in a directory; raise NotFound if there is none."""
        file = _file(directory)
        if not file.exists():
            raise NotFound(f"{directory} holds no cloud: start one there first")
        told = json.loads(file.read_text()) | {"directory": directory}
        if "libvirt_compute" in told:  # from a version that allowed only one
            told["libvirt_computes"] = int(told.pop("libvirt_compute"))
        return cls(**told)

    @classmethod
    def open_or_make(cls, directory: Path, *, fake_computes: int, libvirt_computes: int, tiers: bool = False) -> "Site":
        """Return the cloud in a directory, or a new one of this shape."""
        if _file(directory).exists():
            return cls.open(directory)
        site = cls(
            directory=directory,
            ports=dict(zip(APIS, free_ports(len(APIS), PORTS), strict=True)),
            password=secrets.token_hex(16),
            fake_computes=fake_computes,
            libvirt_computes=libvirt_computes,
            tiers=tiers,
        )
        directory.mkdir(parents=True, exist_ok=True)
        file = _file(directory)
        file.touch(0o600)
        file.write_text(json.dumps({name: value for name, value in asdict(site).items() if name != "directory"}))
        return site

    def endpoint(self, service: str) -> str:
        """Return the URL of a service's API, as the catalogue has it."""
        return f"http://127.0.0.1:{self.ports[service]}{APIS[service][2]}"

    @property
    def fakes(self) -> list[str]:
        """Names of the computes with simulated guests."""
        return [f"fake-{number}" for number in range(1, self.fake_computes + 1)]

    @property
    def libvirts(self) -> list[str]:
        """Names of the computes whose guests run under libvirt."""
        return [f"libvirt-{number}" for number in range(1, self.libvirt_computes + 1)]

    def processors(self, host: str) -> str:
        """Return the pCPUs of a libvirt compute for gangs or tiers, in the syntax of nova.conf."""
        all_of_them = range(min(PROCESSORS, os.cpu_count() or 1))
        return ",".join(map(str, all_of_them[self.libvirts.index(host) :: len(self.libvirts)]))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which OpenStack clients log in as the administrator."""
        return {
            "OS_AUTH_TYPE": "password",
            "OS_AUTH_URL": self.endpoint("keystone"),
            "OS_USERNAME": ADMIN,
            "OS_PASSWORD": self.password,
            "OS_PROJECT_NAME": ADMIN,
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
            "OS_REGION_NAME": REGION,
            "OS_IDENTITY_API_VERSION": "3",
            "OS_COMPUTE_API_VERSION": "2.95",
            "OS_PLACEMENT_API_VERSION": "1.39",
        }

    @property
    def clouds_file(self) -> Path:
        """The file with the same settings for clients that select the cloud by its name, CLOUD."""
        return self.directory / "clouds.yaml"


def _file(directory: Path) -> Path:
    return directory / "site.json"

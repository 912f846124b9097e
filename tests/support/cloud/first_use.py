"""Creates what the first tenant needs: accounts, the catalogue of services, a project, a network, image and flavor."""

import json
import subprocess
from pathlib import Path

import openstack
from cryptography.fernet import Fernet
from openstack.connection import Connection

from support.cloud.schemas import run
from support.cloud.settings import settings_file
from support.cloud.site import ADMIN, APIS, CLOUD, REGION, SERVICE, Site
from support.disks import boot_disk
from support.servers.process import find_program

CONVERT_TIMEOUT_S = 60.0

#: Names of the tenant's project and user, network, image and flavor.
TENANT, NETWORK, IMAGE, FLAVOR = "demo", "shared", "hello", "small"
#: Flavor of the machines of gangs; it requests no VCPU, because their processors do not belong to Nova.
GANG_FLAVOR, GANG_SPECS = "gang", {"resources:VCPU": "0"}
GANG_MIB = 128

#: Prints HELLO on the serial port and halts: a guest that starts quickly on any machine.
_BOOT_CODE = bytes.fromhex(
    "31c0"  # xor ax, ax
    "8ed8"  # mov ds, ax
    "be157c"  # mov si, text
    "baf803"  # mov dx, 0x3f8
    "ac"  # next: lodsb
    "84c0"  # test al, al
    "7403"  # jz end
    "ee"  # out dx, al
    "ebf8"  # jmp next
    "f4"  # end: hlt
    "ebfd"  # jmp end
)
_BOOT_TEXT = b"HELLO\r\n\0"


def make_keys(site: Site) -> None:
    """Create the keys of Keystone's tokens and credentials, as `keystone-manage fernet_setup` does, but quickly."""
    for keys in ("fernet", "credential"):
        directory = site.directory / "keys" / keys
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("0", "1"):  # the next and the present one
            file = directory / name
            if not file.exists():
                file.touch(0o600)
                file.write_bytes(Fernet.generate_key())


def bootstrap_identity(site: Site) -> None:
    """Create the administrator, and Keystone's own entry in the catalogue."""
    interfaces = ("public", "internal", "admin")
    run(
        site,
        "keystone-manage",
        f"--config-file={settings_file(site, 'keystone/keystone.conf')}",
        "bootstrap",
        f"--bootstrap-username={ADMIN}",
        f"--bootstrap-password={site.password}",
        f"--bootstrap-region-id={REGION}",
        *(f"--bootstrap-{interface}-url={site.endpoint('keystone')}" for interface in interfaces),
    )


def connect(site: Site) -> Connection:
    """Return a connection as the administrator."""
    return openstack.connect(load_envvars=False, load_yaml_config=False, **_plain(site))


def write_clouds(site: Site) -> None:
    """Write clouds.yaml as JSON, which is valid YAML."""
    told = _plain(site)
    login = ("auth_url", "username", "password", "project_name", "user_domain_id", "project_domain_id")
    auth = {name: told.pop(name) for name in login}
    site.clouds_file.touch(0o600)
    site.clouds_file.write_text(json.dumps({"clouds": {CLOUD: {**told, "auth": auth}}}, indent=2))


def _plain(site: Site) -> dict[str, str]:
    return {name.removeprefix("OS_").lower(): value for name, value in site.environment.items()}


def fill_catalogue(site: Site) -> None:
    """Add the missing endpoints of services to the catalogue; existing connections do not see them.

    The services use the administrator's account, which is given their role.
    """
    cloud = connect(site)
    identity = cloud.identity
    user, project, role = (
        find(name, ignore_missing=False)
        for find, name in ((identity.find_user, ADMIN), (identity.find_project, ADMIN), (identity.find_role, SERVICE))
    )
    identity.assign_project_role_to_user(project, user, role)
    known = {service.name for service in cloud.identity.services()}
    for name, (kind, _, _) in APIS.items():
        if name in known:
            continue
        service = cloud.identity.create_service(name=name, type=kind)
        for interface in ("public", "internal"):
            cloud.identity.create_endpoint(
                service_id=service.id, interface=interface, url=site.endpoint(name), region_id=REGION
            )


def furnish(site: Site, cloud: Connection) -> None:
    """Create what a tenant needs for a first boot, as far as it is missing."""
    if cloud.identity.find_project(TENANT) is None:
        project = cloud.identity.create_project(name=TENANT, domain_id="default")
        user = cloud.identity.create_user(name=TENANT, password=site.password, default_project_id=project.id)
        role = cloud.identity.find_role("member", ignore_missing=False)
        cloud.identity.assign_project_role_to_user(project, user, role)
    if cloud.network.find_network(NETWORK) is None:
        network = cloud.network.create_network(name=NETWORK, is_shared=True)
        cloud.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.99.0.0/16", name=NETWORK)
    if cloud.compute.find_flavor(FLAVOR) is None:
        cloud.compute.create_flavor(name=FLAVOR, ram=64, vcpus=1, disk=1)
    if cloud.compute.find_flavor(GANG_FLAVOR) is None:
        flavor = cloud.compute.create_flavor(name=GANG_FLAVOR, ram=GANG_MIB, vcpus=1, disk=1, is_public=False)
        cloud.compute.create_flavor_extra_specs(flavor, GANG_SPECS)
    if cloud.image.find_image(IMAGE) is None:
        file = _image(site.directory)
        cloud.create_image(
            IMAGE, filename=str(file), disk_format="qcow2", container_format="bare", visibility="public", wait=True
        )


def _image(directory: Path) -> Path:
    raw, image = directory / "hello.raw", directory / "hello.qcow2"
    raw.write_bytes(boot_disk(_BOOT_CODE + _BOOT_TEXT))
    command = [find_program("qemu-img") or "qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(image)]
    subprocess.run(command, check=True, capture_output=True, timeout=CONVERT_TIMEOUT_S)
    return image

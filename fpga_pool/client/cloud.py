"""Login to the cloud that clouds.yaml or the OS_* variables describe, as all clients of OpenStack read them."""

from fpga_pool.client.session import SERVICE_TYPE, Login
from fpga_pool.model.exceptions import InvalidInput


def cloud_login(name: str | None = None, cacert: str | None = None) -> Login:
    """Return the login to the cloud of this name (None: OS_CLOUD, or the OS_* variables); nothing is sent yet.

    `cacert` is a file of the authorities that may have signed certificates; None = as the cloud is configured.
    """
    # Imported here because clients of an embedded pool need no openstacksdk.
    from keystoneauth1 import exceptions as auth_errors

    try:
        from openstack.config import OpenStackConfig
        from openstack.exceptions import ConfigException
    except ModuleNotFoundError as error:
        raise InvalidInput(f"the login to a cloud: {error}: pip install 'fpga_pool[openstack]'") from error
    try:
        cloud = OpenStackConfig(app_name="fpga_pool").get_one(cloud=name, cacert=cacert)
        return Login(cloud.get_session(), cloud.get_interface(SERVICE_TYPE), cloud.get_region_name(SERVICE_TYPE))
    except (ConfigException, auth_errors.AuthPluginException) as error:
        raise InvalidInput(f"the login to the cloud is not configured: {error}") from error

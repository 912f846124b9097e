"""The pool as a service of openstacksdk."""

import openstack
import pytest
from openstack.exceptions import ServiceDisabledException

from fpga_pool.client.sdk import FpgaService

# openstacksdk passes its own classes arguments that these warn of.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]


@pytest.fixture
def connection(clouds_yaml):
    with openstack.connect(cloud="test") as connection:
        connection.add_service(FpgaService("fpga"))
        yield connection


def test_a_connection_has_the_api_and_the_client(cloud, connection):
    names = [slot["name"] for slot in connection.fpga.get("/slots").json()["slots"]]
    assert names == [slot.name for slot in connection.fpga.client.slots()]
    assert len(names) == 2
    assert connection.fpga.get_endpoint_data().api_version == (1, 0)


def test_a_cloud_without_a_pool_is_named_as_the_cause(connection):
    with pytest.raises(ServiceDisabledException, match=r"'fpga' is disabled .* not present in the service catalog"):
        connection.fpga.client.slots()

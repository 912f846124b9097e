"""A client that logs in to a cloud: real HTTP to a small Keystone, whose tokens the API's middleware validates."""

import pytest
from keystoneauth1 import session
from keystoneauth1.identity import v3

from fpga_pool.client import Client
from fpga_pool.client.cloud import cloud_login
from fpga_pool.client.session import SERVICE_TYPE, Login
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable, TokenRequired
from support.pages import blocks, commands, path_of


@pytest.fixture
def login(keystone):
    def login(**changes):
        return Login(session.Session(auth=v3.Password(**keystone.account | changes), timeout=30))

    return login


def test_the_pool_is_found_in_the_catalogue_and_accepts_the_token(cloud, login):
    with Client(login=login()) as client:
        assert [host.name for host in client.hosts()] == ["node-1", "node-2"]
        assert client.create_gang(1, 60.0, 0.5).project_id == "a" * 32


def test_a_given_endpoint_has_precedence_over_the_catalogue(cloud, login):
    endpoint = cloud.catalogue.pop(SERVICE_TYPE)
    with Client(endpoint, login=login()) as client:
        assert [host.name for host in client.hosts()] == ["node-1", "node-2"]


def test_without_a_login_a_pool_that_authenticates_requires_a_token(cloud):
    with Client(cloud.catalogue[SERVICE_TYPE]) as client, pytest.raises(TokenRequired):
        client.hosts()


@pytest.mark.parametrize(
    ("changes", "catalogue"), [({"auth_url": "http://127.0.0.1:9/v3"}, {}), ({}, {SERVICE_TYPE: "http://127.0.0.1:9"})]
)
def test_what_does_not_respond_is_named(keystone, login, changes, catalogue):
    keystone.catalogue.update(catalogue)
    refused = pytest.raises(
        ServiceUnavailable, match=r"Unable to establish connection to http://127.0.0.1:9/v[13][a-z/]*$"
    )
    with Client(login=login(**changes), connect_retries=0) as client, refused:
        client.hosts()


def test_a_cloud_without_a_pool_is_named_as_the_cause(login):
    with Client(login=login()) as client, pytest.raises(InvalidInput, match="no service of type fpga"):
        client.hosts()


def test_a_wrong_password_is_named_as_the_cause(login):
    with Client(login=login(password="wrong")) as client, pytest.raises(TokenRequired, match="401"):
        client.hosts()


# openstacksdk passes its own class an argument that this class warns of.
@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
def test_the_account_comes_from_clouds_yaml(cloud, clouds_yaml):
    with Client(login=cloud_login("test")) as client:
        assert [host.name for host in client.hosts()] == ["node-1", "node-2"]


def test_a_cloud_that_is_not_configured_is_named(clouds_yaml):
    with pytest.raises(InvalidInput, match="Cloud nowhere was not found"):
        cloud_login("nowhere")


@pytest.mark.filterwarnings("ignore:Support for InfluxDB", "ignore:The 'service_type' parameter")
@pytest.mark.parametrize("name", ["cloud.py", "connection.py"])
def test_the_programs_of_the_guide_print_what_it_shows(cloud, clouds_yaml, capsys, name):
    page = path_of("user/guide")
    (program,) = [block.text for block in blocks(page) if block.caption == name]
    (shown,) = [one.output for one in commands(page) if one.text == f"python {name}"]
    exec(compile(program.replace("mycloud", "test"), name, "exec"), {})
    assert capsys.readouterr().out.strip() == shown

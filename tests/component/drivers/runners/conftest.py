"""The compute service in memory, and one of its hosts."""

import pytest


@pytest.fixture
def api():
    from .compute_api import ComputeApi, Hypervisor

    return ComputeApi({"one": Hypervisor(), "two": Hypervisor()})


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def host(api, clock):
    from .nova_host import Host

    return Host(api, "one", clock)

"""The contract of egress drivers, on a device of a network namespace."""

import importlib.util
from pathlib import Path

import pytest

from fpga_pool.drivers.egress.tc.driver import TcDriver

CONTRACT = Path(__file__).parents[2] / "component" / "drivers" / "egress" / "test_contract.py"

_spec = importlib.util.spec_from_file_location("egress_contract", CONTRACT)
_contract = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_contract)
globals().update({name: test for name, test in vars(_contract).items() if name.startswith("test_")})


class Within:
    """A driver whose calls are made within a namespace."""

    def __init__(self, namespace, driver):
        self._namespace, self._driver = namespace, driver

    def __getattr__(self, name):
        return lambda *arguments: self._namespace.run(getattr(self._driver, name), *arguments)


@pytest.fixture(params=["egress", "ingress"])
def driver(request, net):
    return Within(net.host, TcDriver(net.device, request.param))

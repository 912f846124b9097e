import pytest

from fpga_pool.drivers.slots.functions import function_model, streams
from fpga_pool.model.exceptions import UnknownFunction


def test_finds_a_model_by_its_functions_name():
    assert function_model("sha256") is streams.sha256


def test_unknown_function_is_told():
    with pytest.raises(UnknownFunction, match="'md5' is installed"):
        function_model("md5")

"""Nova's own code loads the validators by their entry point and asks them, as nova-api does."""

import warnings

import pytest

with warnings.catch_warnings():
    # Nova's own modules are deprecated in parts.
    warnings.simplefilter("ignore", DeprecationWarning)
    from nova import exception
    from nova.api.validation.extra_specs import validators

from fpga_pool.model.flavor import EXTRA_SPECS


def refusal(name, value):
    with pytest.raises(exception.ValidationError) as caught:
        validators.validate(name, value)
    return caught.value.format_message()


def test_nova_finds_a_validator_of_each_extra_spec():
    assert set(EXTRA_SPECS) <= set(validators.VALIDATORS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fpga_pool:function", "sha256"),
        ("fpga_pool:function", "aes-128_v2.1"),
        ("fpga_pool:count", "1"),
        ("fpga_pool:count", "64"),
        ("fpga_pool:topology", "ring"),
        ("fpga_pool:tier", "background"),
        ("fpga_pool:runtime", "0.5"),
        ("fpga_pool:runtime", "86400"),
        ("fpga_pool:cpu_usage", "0"),
        ("fpga_pool:cpu_usage", "100"),
        ("fpga_pool:cpu_usage", "37.5"),
    ],
)
def test_right_values_pass(name, value):
    validators.validate(name, value)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("fpga_pool:function", "", "the name of a function of the pool's catalogue"),
        ("fpga_pool:function", "sha 256", "the name of a function of the pool's catalogue"),
        ("fpga_pool:count", "0", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "65", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "two", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "1\n", "a number of slots, 1 to 64"),
        ("fpga_pool:topology", "star", "any, line or ring"),
        ("fpga_pool:topology", "Ring", "any, line or ring"),
        ("fpga_pool:tier", "gold", "foreground or background"),
        ("fpga_pool:runtime", "0.0", "seconds above 0"),
        ("fpga_pool:runtime", "-1", "seconds above 0"),
        ("fpga_pool:runtime", "nan", "seconds above 0"),
        ("fpga_pool:cpu_usage", "101", "percent, 0 to 100"),
        ("fpga_pool:cpu_usage", "100.5", "percent, 0 to 100"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(name, value, sentence):
    assert refusal(name, value) == f"{name}: {value!r} is wrong; it is {sentence}"


def test_a_misspelt_name_is_told_which_names_there_are():
    message = refusal("fpga_pool:fuction", "sha256")
    assert message.startswith("fpga_pool:fuction: not an extra spec of fpga_pool; there are fpga_pool:function, ")


def test_other_namespaces_are_none_of_our_business():
    validators.validate("fpga_poolside:colour", "blue")
    validators.validate("resources:CUSTOM_FPGA_SLOT", "2")
    validators.validate("trait:CUSTOM_FPGA_FUNCTION_SHA256", "required")

"""Nova's own code loads the validators of extra specs by entry point and calls them, as in nova-api.

Nova runs in a separate process, because it changes defaults of the libraries that it shares with the other tests.
"""

import json
import subprocess
import sys

import pytest

from fpga_pool.conf.catalogue import installed_catalogue
from fpga_pool.model.flavor import EXTRA_SPECS

#: Reads lines of [name, value], and answers each with the reason for its refusal, or null.
ASK_NOVA = """
import json, sys
from nova import exception
from nova.api.validation.extra_specs import validators
for line in sys.stdin:
    try:
        print(json.dumps(validators.validate(*json.loads(line))), flush=True)
    except exception.ValidationError as error:
        print(json.dumps(error.format_message()), flush=True)
"""
#: The same for a nova-api whose nova.conf names a catalogue.
WITH_CATALOGUE = """
import nova.conf
from fpga_pool.nova_plugin.conf import register_opts
register_opts(nova.conf.CONF)
nova.conf.CONF.set_override("catalogue", {path!r}, "fpga_pool")
"""


@pytest.fixture(scope="module")
def refusal():
    """Return a function that returns why Nova refuses an extra spec, or None if it is accepted."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ASK_NOVA], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(name, value):
            process.stdin.write(json.dumps([name, value]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask


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
def test_right_values_pass(refusal, name, value):
    assert refusal(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("fpga_pool:function", "", "the name of a function in the pool's catalogue"),
        ("fpga_pool:function", "sha 256", "the name of a function in the pool's catalogue"),
        ("fpga_pool:count", "0", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "65", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "two", "a number of slots, 1 to 64"),
        ("fpga_pool:count", "1\n", "a number of slots, 1 to 64"),
        ("fpga_pool:topology", "star", "any, line or ring"),
        ("fpga_pool:topology", "Ring", "any, line or ring"),
        ("fpga_pool:tier", "gold", "foreground, background or auto"),
        ("fpga_pool:runtime", "0.0", "seconds above 0"),
        ("fpga_pool:runtime", "-1", "seconds above 0"),
        ("fpga_pool:runtime", "nan", "seconds above 0"),
        ("fpga_pool:cpu_usage", "101", "percent, 0 to 100"),
        ("fpga_pool:cpu_usage", "100.5", "percent, 0 to 100"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(refusal, name, value, sentence):
    assert refusal(name, value) == f"{name}: {value!r} is invalid; expected {sentence}"


def test_a_misspelt_name_is_told_which_names_there_are(refusal):
    message = refusal("fpga_pool:fuction", "sha256")
    assert message == f"fpga_pool:fuction: not an extra spec of fpga_pool; expected one of {', '.join(EXTRA_SPECS)}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fpga_poolside:colour", "blue"),
        ("resources:CUSTOM_FPGA_SLOT", "2"),
        ("trait_FPGA1:CUSTOM_FPGA_FUNCTION_SHA256", "required"),
    ],
)
def test_other_namespaces_are_none_of_our_business(refusal, name, value):
    assert refusal(name, value) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "'sha512' is not in the catalogue"), ("broken", "null"), ("missing", "null")],
)
def test_a_function_must_be_in_the_catalogue_that_nova_conf_names(tmp_path, content, reason):
    path = installed_catalogue() if content is None else tmp_path / "catalogue.toml"
    if content == "broken":
        path.write_text("format_version = 1")
    script = WITH_CATALOGUE.format(path=str(path)) + ASK_NOVA
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        input='["fpga_pool:function", "sha512"]\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert reason in done.stdout

import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.model.exceptions import InvalidInput


def test_a_policy_has_the_parameters_of_its_group(read_conf):
    conf = read_conf("[policy_sjf]\nprefetch = 0")
    assert load_policy("batch", "sjf", conf)._params.prefetch == 0
    assert load_policy("batch", "ljf", conf)._params.prefetch == 1


def test_without_configuration_a_policy_has_its_default_parameters():
    assert load_policy("batch", "sjf")._params.prefetch == 1


def test_every_policy_can_be_loaded_from_an_empty_configuration(read_conf):
    conf = read_conf()
    for name in policy_names("batch"):
        assert load_policy("batch", name, conf).name == name


def test_an_unknown_policy_is_refused_with_those_there_are():
    known = "cim, ect, exact, ljf, makespan, ncjm, nim, sjf, waves"
    with pytest.raises(InvalidInput, match=f"policy 'psychic': no such batch policy; available: {known}"):
        load_policy("batch", "psychic")

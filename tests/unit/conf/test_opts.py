import re
import socket
from contextlib import nullcontext
from itertools import chain
from pathlib import Path

import oslo_messaging.opts
import oslo_middleware.opts
import pytest
from keystonemiddleware import auth_token
from oslo_config import cfg, generator
from oslo_log import _options as log_options

from fpga_pool.conf.agent import data_tls, peer_tls
from fpga_pool.conf.opts import check_options, check_values, list_opts, unknown_names
from fpga_pool.conf.scheduler import pool_settings
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.rules.shared.sharding import BY_ZONE, ShardRule

ROOT = Path(__file__).parents[3]
GENERATOR = ROOT / "etc/fpga_pool/fpga-pool-config-generator.conf"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[api]\nport = 99999", "[api] port: expected a whole number from 0 to 65535, found '99999'"),
        ("[scheduler]\nshards = 0", "[scheduler] shards: expected a whole number from 1 to 10000, found '0'"),
        ("[scheduler]\nshard_by = zone", "[scheduler] shard_by: Valid values are [number, availability_zone]"),
        ("[agent]\ndata_bind_address = here", "[agent] data_bind_address: "),
        ("[agent]\negress_mbps = fast", "[agent] egress_mbps: expected a number, at least 0.001, found 'fast'"),
        ("[scheduler]\nname = a/b", "[scheduler] name: "),
        ("[scheduler]\ninterval_s = nan", "[scheduler] interval_s: expected a finite number, found nan"),
        ("[standalone]\negress_mbps = inf", "[standalone] egress_mbps: expected a finite number, found inf"),
        (
            "[agent]\nheartbeat_s = 1e10",
            "[agent] heartbeat_s: expected at most 1000000000 seconds, found 10000000000.0",
        ),
        (
            "[scheduler]\nshards = 99999999",
            "[scheduler] shards: expected a whole number from 1 to 10000, found '99999999'",
        ),
        ("[agent]\ncpu_workers = 9999", "[agent] cpu_workers: expected a whole number from 0 to 1024, found '9999'"),
        (
            "[scheduler]\ndefault_policy = nosuch",
            "[scheduler] default_policy: no such batch or online policy 'nosuch'; available: cim, ect,",
        ),
        (
            "[scheduler]\ngang_policy = lattice",
            "[scheduler] gang_policy: no such gang policy 'lattice'; available: easy, keasy, measy, measy_plus, reasy",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_option_and_what_is_right(read_conf, text, reason):
    with pytest.raises(InvalidInput) as refused:
        check_values(read_conf(text))
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("[keystone_authtoken] token_cache_time", -5, "-1 to 1000000000 seconds"),
        ("[keystone_authtoken] http_connect_timeout", 0, "1 to 1000000000 seconds"),
        ("[keystone_authtoken] memcache_pool_maxsize", -1, "at least 1"),
        ("[DEFAULT] rpc_response_timeout", -1, "1 to 1000000000 seconds"),
        ("[DEFAULT] rpc_response_timeout", 10**12, "at most 1000000000 seconds"),
        ("[DEFAULT] max_logfile_count", -2, "at least 0"),
        ("[oslo_messaging_rabbit] heartbeat_timeout_threshold", -1, "0 to 1000000000 seconds"),
        ("[oslo_messaging_rabbit] heartbeat_rate", 0, "at least 1"),
        ("[oslo_messaging_rabbit] conn_pool_ttl", -1, "0 to 1000000000 seconds"),
        ("[oslo_messaging_notifications] retry", -2, "at least -1"),
        ("[cors] max_age", -1, "at least 0"),
    ],
)
def test_a_number_that_its_library_takes_and_cannot_use_is_refused(library_options, option, value, expected):
    group, name = option.strip("[").split("] ")
    library_options.set_override(name, value, None if group == "DEFAULT" else group)
    with pytest.raises(InvalidInput, match=re.escape(f"{option}: expected {expected}, found {value}")):
        check_values(library_options)


@pytest.mark.parametrize(
    ("group", "name"), [("keystone_authtoken", "token_cache_time"), ("oslo_messaging_notifications", "retry")]
)
def test_minus_one_is_taken_where_its_library_means_none_or_no_end(library_options, group, name):
    library_options.set_override(name, -1, group)
    check_values(library_options)


@pytest.mark.parametrize(
    ("scheme", "option", "needed"),
    [("http", "cafile", False), ("https", "cafile", True), ("http", "memcache_tls_cafile", True)],
)
def test_authorities_of_keystone_that_are_not_there_matter_where_it_speaks_tls(read_conf, scheme, option, needed):
    text = f"[keystone_authtoken]\nauth_url = {scheme}://keystone.test/identity\n{option} = /nowhere.pem\n"
    conf, options = read_conf(text), dict(auth_token.list_opts())["keystone_authtoken"]
    with pytest.raises(InvalidInput, match="cafile: /nowhere") if needed else nullcontext():
        check_options(conf, "keystone_authtoken", options)


def test_parameters_of_policies_may_be_negative(read_conf):
    conf = read_conf("[policy_of_others]\nbias = -0.5\n")
    conf.register_opt(cfg.FloatOpt("bias"), "policy_of_others")
    check_values(conf)


@pytest.fixture
def library_options(read_conf):
    conf = read_conf("")
    libraries = (auth_token.list_opts(), oslo_messaging.opts.list_opts(), oslo_middleware.opts.list_opts())
    for group, options in [*chain(*libraries), (None, log_options.logging_cli_opts), *log_options.list_opts()]:
        conf.register_opts(options, group)
    return conf


def test_without_a_file_every_value_is_right(read_conf):
    check_values(read_conf())


def test_names_that_no_option_has_are_found_in_our_groups_and_groups_named_almost_as_ours(read_conf, tmp_path):
    conf = read_conf(
        "[DEFAULT]\nverbose = true\n[scheduler]\nshards = 2\ndefault_polciy = ect\n[Agent]\nhost = a\nqqq = 1\n"
        "[schedular]\nshards = 2\n[keystone_authtoken]\nauth_typo = password\n"
    )
    file = tmp_path / "fpga_pool.conf"
    assert unknown_names(conf) == [
        f"{file}: [scheduler] default_polciy: no such option; did you mean default_policy?",
        f"{file}: [Agent] qqq: no such option",
        f"{file}: [schedular]: no such group; did you mean scheduler?",
    ]


def test_what_is_overridden_in_one_configuration_is_not_in_another(read_conf):
    read_conf("").set_override("port", 0, "api")
    assert read_conf("").api.port == 9511


def test_every_option_is_known_by_its_name(read_conf):
    options = [(group.name, option.name, option.default) for group, options in list_opts() for option in options]
    text = "\n".join(f"[{group}]\n{name} = {default}" for group, name, default in options)
    assert len(options) > 100
    assert unknown_names(read_conf(text)) == []


def test_agents_and_schedulers_are_named_after_their_machine(read_conf):
    conf = read_conf()
    assert (conf.agent.host, conf.scheduler.name) == (socket.gethostname(), socket.gethostname())


def test_shards_are_divided_as_configured(read_conf):
    conf = read_conf("[scheduler]\nshard_by = availability_zone\nsplit_batches = true")
    assert pool_settings(conf).shards == ShardRule(by=BY_ZONE, number=1, split_batches=True)


def test_half_of_a_tls_pair_is_refused(read_conf):
    with pytest.raises(InvalidInput, match="set both or none"):
        data_tls(read_conf("[agent]\ndata_tls_cert = /x"))


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), ("no certificate", "NO_CERTIFICATE")])
def test_authorities_that_cannot_be_used_are_refused(read_conf, tmp_path, content, reason):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match=rf"\[agent\] data_tls_ca: {path} cannot be used: .*{reason}"):
        peer_tls(read_conf(f"[agent]\ndata_tls_ca = {path}"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Return the path of the sample configuration, as generated."""
    path = tmp_path_factory.mktemp("sample") / "fpga_pool.conf"
    generator.main([f"--config-file={GENERATOR}", f"--output-file={path}"])
    return path


@pytest.mark.parametrize(
    "line",
    [
        "[scheduler]", "[agent]", "[api]", "[functions]", "[database]", "[oslo_messaging_rabbit]", "#transport_url = ",
        "#connection = <None>", "#log_file = <None>", "#graceful_shutdown_timeout = 60", "#shard_by = number",
        "#heartbeat_timeout_threshold = 10", "#max_retries = 5", "#helper_command = ",
    ],
)  # fmt: skip
def test_the_sample_has_all_groups_and_the_pools_own_defaults(sample, line):
    assert any(found.startswith(line) for found in sample.read_text().splitlines())


def test_the_sample_can_be_read_again(sample, read_conf):
    ours = {group.name for group, _ in list_opts()}
    lines, group = [], ""
    for line in sample.read_text().splitlines():
        group = line.strip("[]") if line.startswith("[") else group
        is_value = line.startswith("#") and " = " in line and not line.startswith("# ") and "<" not in line
        lines.append(line[1:] if is_value and group in ours else line)
    conf = read_conf("\n".join(lines))
    check_values(conf)
    for group, options in list_opts():
        for option in options:
            if option.sample_default is None:
                assert conf[group.name][option.name] == cfg.ConfigOpts._substitute(conf, option.default)

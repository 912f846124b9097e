"""[fpga_pool] of nova.conf: how nova-scheduler asks the pool."""

from pathlib import Path

from oslo_config import cfg

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.catalogue import Catalogue

GROUP = cfg.OptGroup("fpga_pool", title="The pool of FPGA slots")
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        mutable=True,
        help="Whether filters and weighers of the pool do anything. With false, instances are placed as if they were "
        "not installed.",
    ),
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Message bus of the pool; unless set it is that of nova-scheduler itself.",
    ),
    cfg.StrOpt(
        "catalogue",
        help="Catalogue file, the same as that of the pool ([functions] catalogue there); unless set it is "
        "/etc/fpga_pool/catalogue.toml, or the one that came with fpga_pool.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=2.0,
        min=0.1,
        max=60.0,
        help="How long a request waits for the pool's answer, seconds.",
    ),
    cfg.FloatOpt(
        "snapshot_age",
        default=1.0,
        min=0.0,
        max=60.0,
        help="What is known of the pool serves further requests for so long, seconds, before the pool is asked what "
        "has changed. A choice that was made on what is no longer true fails on the compute node, and the instance "
        "goes to an alternate.",
    ),
    cfg.FloatOpt(
        "stale_age",
        default=60.0,
        min=0.0,
        help="While the pool does not answer, what was known of it serves for so long, seconds.",
    ),
    cfg.IntOpt(
        "breaker_failures",
        default=3,
        min=1,
        help="After so many questions in a row without an answer the pool is not asked for a while, so that no "
        "request waits in vain.",
    ),
    cfg.FloatOpt(
        "breaker_reset",
        default=30.0,
        min=0.0,
        help="How long that is, seconds.",
    ),
    cfg.BoolOpt(
        "fail_open",
        default=False,
        help="What happens to a request for accelerators while nothing is known of the pool: with true Placement alone "
        "chooses, with false no host is found. Other requests are never affected.",
    ),
    cfg.FloatOpt(
        "expected_stay",
        default=3600.0,
        min=1.0,
        help="How long an instance is taken to keep its slots where its flavor has no fpga_pool:runtime, seconds: the "
        "time to load a function is weighed against it.",
    ),
    cfg.FloatOpt(
        "benefit_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolBenefitWeigher: hosts where the instance adds most to the benefit of the whole "
        "pool. A host aggregate may set its own fpga_pool_benefit_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "makespan_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolMakespanWeigher: hosts of the plan that completes all instances of a request "
        "soonest. A host aggregate may set its own fpga_pool_makespan_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "lattice_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolLatticeWeigher: hosts where an instance with several slots leaves most of the "
        "others connected. A host aggregate may set its own fpga_pool_lattice_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "tier_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolTierWeigher: hosts where the other tier than the instance's is emptiest. A host "
        "aggregate may set its own fpga_pool_tier_weight_multiplier.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Make the options known to Nova's configuration; again has no effect."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, GROUP)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options, for a sample of what goes into nova.conf."""
    return [(GROUP, OPTS)]


def catalogue(conf: cfg.ConfigOpts) -> Catalogue:
    """Return the pool's catalogue as it is on this machine."""
    return load_catalogue(Path(conf.fpga_pool.catalogue) if conf.fpga_pool.catalogue else installed_catalogue())

"""The options [fpga_pool] in nova.conf: how nova-scheduler queries the pool."""

from pathlib import Path

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS, installed_catalogue, load_catalogue
from fpga_pool.conf.names import unknown_among
from fpga_pool.model.catalogue import Catalogue

GROUP = cfg.OptGroup("fpga_pool", title="The pool of FPGA slots")
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        mutable=True,
        help="Whether the filters and weighers of the pool are active. If false, instances are placed as if they were "
        "not installed.",
    ),
    cfg.StrOpt("transport_url", secret=True, help="Message bus of the pool; defaults to that of nova-scheduler."),
    cfg.StrOpt(
        "key",
        default=str(KEYS / "nova.pem"),
        help="Private key (PEM, Ed25519, mode 0600, owned by the user of nova-scheduler) that signs requests to the "
        "pool.",
    ),
    cfg.StrOpt(
        "catalogue",
        help="Catalogue file, the same as that of the pool ([functions] catalogue there); defaults to "
        "/etc/fpga_pool/catalogue.toml, or else the catalogue installed with fpga_pool.",
    ),
    cfg.FloatOpt("timeout", default=2.0, min=0.1, max=60.0, help="Timeout of requests to the pool in seconds."),
    cfg.FloatOpt(
        "snapshot_age",
        default=1.0,
        min=0.0,
        max=60.0,
        help="Maximum age of the cached pool view in seconds; then changes are requested from the pool. A choice "
        "based on an outdated view fails on the compute node, and the instance goes to an alternate.",
    ),
    cfg.FloatOpt(
        "stale_age",
        default=20.0,
        min=0.0,
        help="Maximum age of the cached pool view in seconds while the pool does not respond. A compute node gives a "
        "machine slots only once the pool responds again, so a longer age makes tenants wait for a refusal.",
    ),
    cfg.IntOpt(
        "breaker_failures",
        default=3,
        min=1,
        help="Number of consecutive timeouts after which the pool is not queried for a while, so that requests do not "
        "wait in vain.",
    ),
    cfg.FloatOpt(
        "breaker_reset", default=30.0, min=0.0, help="Time in seconds for which the pool is then not queried."
    ),
    cfg.BoolOpt(
        "fail_open",
        default=False,
        help="Handling of requests for accelerators without a valid pool view: if true, Placement alone chooses; if "
        "false, no host is found. Other requests are never affected.",
    ),
    cfg.FloatOpt(
        "expected_stay",
        default=3600.0,
        min=1.0,
        help="Assumed run time in seconds of instances whose flavor has no fpga_pool:runtime, until some of the "
        "project or of all projects have ended: the time to load a function is weighed against it.",
    ),
    cfg.FloatOpt(
        "benefit_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolBenefitWeigher: prefers hosts where the instance adds most to the benefit of the "
        "whole pool. A host aggregate may override it with fpga_pool_benefit_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "makespan_weight_multiplier",
        default=10.0,
        help="Multiplier of FpgaPoolMakespanWeigher: prefers the hosts where this instance and those to come complete "
        "first. By default it outweighs the other weighers together, which prefer the fastest board for each "
        "instance. A host aggregate may override it with fpga_pool_makespan_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "scarcity_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolScarcityWeigher: prefers hosts where the instance takes slots that other functions "
        "need least. A host aggregate may override it with fpga_pool_scarcity_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "lattice_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolLatticeWeigher: prefers hosts where an instance with several slots leaves most of "
        "the remaining slots connected. A host aggregate may override it with "
        "fpga_pool_lattice_weight_multiplier.",
    ),
    cfg.StrOpt(
        "learned_mode",
        default="off",
        choices=[
            ("off", "FpgaPoolLearnedWeigher is neutral and computes nothing."),
            ("shadow", "It is neutral, and its choice is compared with Nova's in the log."),
            ("active", "It weighs hosts."),
        ],
        mutable=True,
        help="What FpgaPoolLearnedWeigher does.",
    ),
    cfg.StrOpt(
        "learned_weights",
        default="",
        help="File of weights for FpgaPoolLearnedWeigher, as fpga-pool-learn export writes it; empty: those of the "
        "package. The weigher is neutral if it cannot be read.",
    ),
    cfg.FloatOpt(
        "learned_time_budget",
        default=0.05,
        min=0.0,
        help="Time in seconds that FpgaPoolLearnedWeigher may take for one instance. Its weights are discarded when it "
        "takes longer; after breaker_failures times in a row it computes nothing for breaker_reset seconds.",
    ),
    cfg.FloatOpt(
        "learned_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolLearnedWeigher, where learned_mode is active. A host aggregate may override it "
        "with fpga_pool_learned_weight_multiplier.",
    ),
    cfg.FloatOpt(
        "tier_weight_multiplier",
        default=1.0,
        help="Multiplier of FpgaPoolTierWeigher: prefers hosts where the opposite tier of the instance's is emptiest. "
        "A host aggregate may override it with fpga_pool_tier_weight_multiplier.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options in Nova's configuration; repeated calls have no effect."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, GROUP)


def unread(conf: cfg.ConfigOpts) -> list[str]:
    """Return warnings for the names in the group [fpga_pool] of nova.conf that are no options."""
    return unknown_among(conf, {GROUP.name: set(conf[GROUP.name])})


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options for the sample of nova.conf."""
    return [(GROUP, OPTS)]


def catalogue(conf: cfg.ConfigOpts) -> Catalogue:
    """Return the pool's catalogue as installed on this machine."""
    return load_catalogue(Path(conf.fpga_pool.catalogue) if conf.fpga_pool.catalogue else installed_catalogue())

"""[driver_simulated]: cards that exist in software only, and how often they fail."""

from oslo_config import cfg

GROUP = cfg.OptGroup("driver_simulated", title="Simulated slot driver")
OPTS = [
    cfg.StrOpt("board", default="demo", help="Board of the catalogue that every simulated card is."),
    cfg.IntOpt("cards", default=1, min=0, help="Simulated cards per host; 0 makes a host that only sends inputs."),
    cfg.BoolOpt(
        "virtual_functions",
        default=False,
        help="Whether each slot tells a PCI address, as one of an SR-IOV card would, which guests get instead of a "
        "channel. There is no device at these addresses: only the simulated guest driver takes them.",
    ),
    cfg.FloatOpt("load_fails", default=0.0, min=0.0, max=1.0, help="Probability per load that it fails."),
    cfg.FloatOpt("job_hangs", default=0.0, min=0.0, max=1.0, help="Probability per job that it never ends by itself."),
    cfg.FloatOpt(
        "card_disappears", default=0.0, min=0.0, max=1.0, help="Probability per job that its card disappears."
    ),
    cfg.FloatOpt("card_returns_after_s", default=1.0, min=0.0, help="After how long it is back, in seconds."),
    cfg.IntOpt("fault_seed", default=0, min=0, help="Seed of the faults."),
]

"""[driver_simulated]: cards that exist in software only, and how often they fail."""

from oslo_config import cfg

GROUP = cfg.OptGroup("driver_simulated", title="Simulated slot driver")
OPTS = [
    cfg.StrOpt("board", default="demo", help="Board of the catalogue of all simulated cards."),
    cfg.IntOpt("cards", default=1, min=0, help="Simulated cards per host; a host with 0 cards only sends inputs."),
    cfg.BoolOpt(
        "virtual_functions",
        default=False,
        help="Whether each slot reports a PCI address, like a slot of an SR-IOV card, which guests get instead of a "
        "channel. There is no device at these addresses: only the simulated guest driver accepts them.",
    ),
    cfg.FloatOpt(
        "neighbour_cost",
        default=0.0,
        min=0.0,
        help="Interference of the slots of a card beyond its DMA: what a job takes longer for each other one that "
        "computes on the card, in parts of its time alone.",
    ),
    cfg.FloatOpt("load_fails", default=0.0, min=0.0, max=1.0, help="Probability that a load fails."),
    cfg.FloatOpt("job_hangs", default=0.0, min=0.0, max=1.0, help="Probability that a job hangs."),
    cfg.FloatOpt(
        "card_disappears", default=0.0, min=0.0, max=1.0, help="Probability per job that the card disappears."
    ),
    cfg.FloatOpt("card_returns_after_s", default=1.0, min=0.0, help="Time in seconds after which a lost card returns."),
    cfg.IntOpt("fault_seed", default=0, min=0, help="Random seed of the faults."),
]

"""[runner_nova]: processes of gangs that are servers of Nova."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "runner_nova",
    title="Processes of gangs as servers of Nova",
    help="What servers are made of; [nova] says who makes them. Each is on the host whose agent has made it, where the "
    "libvirt of [agent] libvirt_uri runs it.",
)
OPTS = [
    cfg.StrOpt(
        "flavor",
        default="fpga-pool-gang",
        help="Name or uuid of the flavor of all servers: one vCPU, resources:VCPU=0 because its processor is none of "
        "Nova's, no fpga_pool:tier because its tier is the gang's, and no processor of its own.",
    ),
    cfg.StrOpt(
        "default_image",
        default="fpga-pool-gang",
        help="Name of the image of gangs that name none. Images are public, or belong to the project of the servers.",
    ),
    cfg.ListOpt(
        "networks",
        default=[],
        help="Names or uuids of the networks that servers are connected to; empty = none.",
    ),
    cfg.FloatOpt(
        "poll_interval_s",
        default=10.0,
        min=1.0,
        help="How often Nova is asked for the servers of this host, in seconds. It is asked each second while one of "
        "them does not run: is built, saved, moved, or has ended.",
    ),
    cfg.FloatOpt(
        "build_timeout_s",
        default=600.0,
        min=10.0,
        help="A server that Nova has not built, or moved here, in so many seconds has failed.",
    ),
    cfg.FloatOpt(
        "keep_saved_s",
        default=86400.0,
        min=60.0,
        help="A paused server that nobody has gone on from for so long is deleted, in seconds.",
    ),
]

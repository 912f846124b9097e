"""[runner_nova]: processes of gangs that are servers of Nova."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "runner_nova",
    title="Gang processes as Nova servers",
    help="Properties of the servers; [nova] has the credentials to create them. Each server runs on the host whose "
    "agent has created it, under the libvirt of [agent] libvirt_uri.",
)
OPTS = [
    cfg.StrOpt(
        "flavor",
        default="fpga-pool-gang",
        help="Name or uuid of the flavor of all servers: one vCPU, resources:VCPU=0 because its processor is not "
        "managed by Nova, no fpga_pool:tier because the gang sets its tier, and no dedicated pCPU.",
    ),
    cfg.StrOpt(
        "default_image",
        default="fpga-pool-gang",
        help="Name of the image of gangs that specify none. Images must be public or belong to the project of the "
        "servers.",
    ),
    cfg.ListOpt(
        "networks",
        default=[],
        help="Names or uuids of the networks to which servers are connected; empty = none.",
    ),
    cfg.FloatOpt(
        "poll_interval_s",
        default=10.0,
        min=1.0,
        help="Interval in seconds at which the servers of this host are read from Nova; one second while any of them "
        "is not running: being built, saved, moved, or ended.",
    ),
    cfg.FloatOpt(
        "build_timeout_s",
        default=600.0,
        min=10.0,
        help="Maximum time in seconds for Nova to build a server or to move it to this host; then it has failed.",
    ),
    cfg.FloatOpt(
        "keep_saved_s",
        default=86400.0,
        min=60.0,
        help="Time in seconds after which a paused server that was not resumed is deleted.",
    ),
]

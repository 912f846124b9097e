"""[scheduler]: how the pool plans, and when it gives up."""

import socket

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import BY_NUMBER, BY_ZONE, ShardRule

GROUP = cfg.OptGroup("scheduler", title="Pool scheduler")
_DEFAULTS = PoolSettings()

OPTS = [
    cfg.HostAddressOpt(
        "name",
        default=socket.gethostname(),
        sample_default="<host name>",
        help="Name of this scheduler; no other one may have it. A scheduler that starts again under its name takes its "
        "shards back at once.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/fpga_pool/scheduler",
        help="Directory of the lock that keeps a second scheduler of this name from starting on this machine.",
    ),
    cfg.StrOpt(
        "token_key",
        default=str(KEYS / "tokens.pem"),
        help="Private key (PEM, Ed25519, mode 0600) that signs transfer tokens; the same for all schedulers.",
    ),
    cfg.StrOpt(
        "shard_by",
        default=BY_NUMBER,
        choices=[
            (BY_NUMBER, "into as many shards as the option shards says; a new host joins the smallest"),
            (BY_ZONE, "one shard for each availability zone of the agents"),
        ],
        help="How the pool is divided into shards that are planned independently, each by one scheduler at a time. All "
        "schedulers must have the same value. Hosts stay in the shard that they joined first.",
    ),
    cfg.IntOpt(
        "shards",
        default=1,
        min=1,
        help="Number of shards with shard_by = number. As many as there are schedulers keeps them all busy; more make "
        "plans quicker to find, and longer.",
    ),
    cfg.BoolOpt(
        "split_batches",
        default=False,
        help="Divide every batch among the shards that can run it; otherwise one shard runs the whole batch.",
    ),
    cfg.StrOpt(
        "default_policy",
        default="makespan",
        help="Policy for batches that do not name one: a batch policy (entry point of group "
        "fpga_pool.policies.batch), by which all jobs of a batch are planned together, or online_policy.",
    ),
    cfg.StrOpt(
        "online_policy",
        default="benefit_plus",
        help="Online policy (entry point of group fpga_pool.policies.online) of this pool. Batches that name it are "
        "not planned: it gives each of their jobs a slot when one is worth it, and the CPU of a host until then.",
    ),
    cfg.FloatOpt(
        "online_interval_s",
        default=0.5,
        min=0.01,
        help="How often, in seconds, the online policy looks at its jobs when no event wakes it.",
    ),
    cfg.BoolOpt(
        "plan_results",
        default=_DEFAULTS.plan_results,
        help="Whether batches are planned so that their results are back early, and agents send results at the planned "
        "rates. Sizes are those of the catalogue (result_size). NICs are taken to carry results beside the inputs that "
        "go the other way. Without it, results are sent as fast as clients take them, and plans take their way back to "
        "be free.",
    ),
    cfg.FloatOpt(
        "online_patience_s",
        default=_DEFAULTS.online_patience_s,
        min=0.0,
        help="How long, in seconds, an online job waits for a slot before it may go to a CPU ([agent] cpu_workers); 0 "
        "stands for as long as it would compute on a slot.",
    ),
    cfg.BoolOpt(
        "load_ahead",
        default=_DEFAULTS.load_ahead,
        help="Whether empty slots load what the online policy expects to be asked for, before a job needs it: from the "
        "first online job on, or at once where default_policy is online_policy. No lease is taken, so instances, tasks "
        "and plans get such a slot as before, after the load at the latest. A slot is told so once a minute at most. "
        "Switch it off where every reconfiguration must be for a job that is there.",
    ),
    cfg.StrOpt(
        "gang_policy",
        default="measy_plus",
        help="Policy (entry point of group fpga_pool.policies.gang) by which gangs get their processors, and move from "
        "the background to the foreground.",
    ),
    cfg.FloatOpt(
        "gang_migration_s",
        default=_DEFAULTS.gang_migration_s,
        min=0.0,
        help="Seconds that the migration of a gang is expected to take.",
    ),
    cfg.StrOpt(
        "task_policy",
        default="lattice_plus",
        help="Policy (entry point of group fpga_pool.policies.task) by which tasks that take several slots get them.",
    ),
    cfg.FloatOpt(
        "task_patience_s",
        default=_DEFAULTS.task_patience_s,
        min=0.0,
        help="How long, in seconds, a task waits for slots that are free at once. Then it gets those that are free for "
        "it soonest, in order of arrival: no other work comes there any more. 0 keeps all tasks in this order, and "
        "leaves the policy nothing to decide.",
    ),
    cfg.FloatOpt(
        "planning_share",
        default=0.02,
        min=0.001,
        max=1.0,
        help="About how long a policy that searches may search for the plan of a batch, as a share of what the batch "
        "takes at least, up to the effort in the policy's own section. Small batches are so planned in about a "
        "millisecond. Raise it where batches take minutes and accelerators are scarce.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=1.0,
        min=0.01,
        help="How often, in seconds, pending jobs, undelivered commands and silent hosts are looked at when nothing "
        "else wakes the scheduler. Lower it only to find faults sooner.",
    ),
    cfg.FloatOpt(
        "tenant_share",
        default=_DEFAULTS.tenant_share,
        min=0.001,
        max=1.0,
        help="Share of a shard's slots, one at least, that the online jobs of one project may have at a time. Below 1 "
        "no project can push all others out for ever; slots stay unused while one alone asks for more.",
    ),
    cfg.FloatOpt(
        "claim_patience_s",
        default=_DEFAULTS.claim_patience_s,
        min=0.0,
        help="How long, in seconds, the boot of a virtual machine may wait for a job that cannot be stopped to leave "
        "its slot. A slot that is busy for longer is reserved in Placement, and no boot gets it.",
    ),
    cfg.IntOpt(
        "floor_slots",
        default=_DEFAULTS.floor_slots,
        min=0,
        help="So many slots of each kind on each card are reserved in Placement: no virtual machine gets them, they "
        "stay for the jobs of the pool.",
    ),
    cfg.FloatOpt(
        "shard_timeout_s",
        default=5.0,
        min=0.5,
        help="A scheduler that gave no sign of life for so many seconds loses its shards to the others.",
    ),
    cfg.FloatOpt("refit_interval_s", default=5.0, min=0.1, help="How often time models are refitted, in seconds."),
    cfg.FloatOpt(
        "token_lifetime_s",
        default=300.0,
        min=1.0,
        help="How long, in seconds, a client may take from getting a transfer token to opening the stream.",
    ),
    cfg.IntOpt(
        "max_batch_jobs",
        default=_DEFAULTS.max_batch_jobs,
        min=1,
        help="Largest batch that is accepted. Planning time and the size of the answer grow with it.",
    ),
    cfg.IntOpt("max_input_bytes", default=_DEFAULTS.max_input_bytes, min=0, help="Largest input of one job, in bytes."),
    cfg.IntOpt(
        "max_attempts",
        default=_DEFAULTS.max_attempts,
        min=1,
        help="How often a job is planned before it is given up. Raise it where cards fail often.",
    ),
    cfg.FloatOpt(
        "host_timeout_s",
        default=_DEFAULTS.host_timeout_s,
        min=0.1,
        help="A host that was silent for so many seconds is lost: its jobs run elsewhere. Several heartbeats of the "
        "agents must fit in.",
    ),
    cfg.FloatOpt(
        "input_timeout_s",
        default=_DEFAULTS.input_timeout_s,
        min=0.1,
        help="How long after its planned transfer a job waits for its input before it fails, in seconds.",
    ),
    cfg.FloatOpt(
        "replan_horizon_s",
        default=_DEFAULTS.replan_horizon_s,
        min=0.0,
        help="Jobs that begin to move or to compute within so many seconds stay as planned when the rest is planned "
        "again: because a batch has arrived, a slot or a host was lost, or reality differs from the plan. It must be "
        "longer than commands and clients take to follow.",
    ),
    cfg.FloatOpt(
        "replan_late_s",
        default=_DEFAULTS.replan_late_s,
        min=0.1,
        help="What has not begun is planned again when an input or a computation is later than planned by more than so "
        "many seconds, and again when it is twice as late.",
    ),
    cfg.FloatOpt(
        "dispatch_lead_s",
        default=_DEFAULTS.dispatch_lead_s,
        min=0.0,
        help="Time between the commit of a plan and its time 0, in which agents and clients learn of it, in seconds.",
    ),
]


def pool_settings(conf: cfg.ConfigOpts) -> PoolSettings:
    """Return the limits and times of the pool's rules as configured."""
    group = conf.scheduler
    return PoolSettings(
        max_batch_jobs=group.max_batch_jobs,
        max_input_bytes=group.max_input_bytes,
        max_attempts=group.max_attempts,
        host_timeout_s=group.host_timeout_s,
        input_timeout_s=group.input_timeout_s,
        dispatch_lead_s=group.dispatch_lead_s,
        replan_horizon_s=group.replan_horizon_s,
        replan_late_s=group.replan_late_s,
        plan_results=group.plan_results,
        online_patience_s=group.online_patience_s,
        tenant_share=group.tenant_share,
        load_ahead=group.load_ahead,
        claim_patience_s=group.claim_patience_s,
        floor_slots=group.floor_slots,
        gang_migration_s=group.gang_migration_s,
        task_patience_s=group.task_patience_s,
        shards=ShardRule(by=group.shard_by, number=group.shards, split_batches=group.split_batches),
    )

"""[scheduler]: options of planning, and timeouts and limits of the pool."""

import socket
from dataclasses import fields

from oslo_config import cfg

from fpga_pool.conf.catalogue import KEYS
from fpga_pool.conf.policies import PolicyName, policy_names
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.quotas import DEFAULT_LIMITS, UNLIMITED, QuotaLimits, Resource
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import BY_NUMBER, BY_ZONE, ShardRule

GROUP = cfg.OptGroup("scheduler", title="Pool scheduler")
_DEFAULTS = PoolSettings()
#: Services that may keep the limits of projects.
POOL, KEYSTONE = "pool", "keystone"


def _quota_opt(resource: Resource, what: str) -> cfg.IntOpt:
    return cfg.IntOpt(
        f"quota_{resource}",
        default=DEFAULT_LIMITS.of(resource),
        min=UNLIMITED,
        help=f"How much one project may have at a time of {what}; {UNLIMITED} = no limit. `fpga-pool quota set` gives "
        "a project a limit of its own.",
    )


OPTS = [
    cfg.HostAddressOpt(
        "name",
        default=socket.gethostname(),
        sample_default="<host name>",
        help="Name of this scheduler; must be unique. A scheduler that restarts under the same name takes its shards "
        "back immediately.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/fpga_pool/scheduler",
        help="Directory of the lock that keeps a second scheduler of this name from starting on this machine.",
    ),
    cfg.StrOpt(
        "token_key",
        default=str(KEYS / "tokens.pem"),
        help="Private key (PEM, Ed25519, mode 0600) that signs transfer tokens and calls of agents; the same for all "
        "schedulers.",
    ),
    cfg.StrOpt(
        "api_public_key",
        default=str(KEYS / "api.pub"),
        help="Public keys (PEM, Ed25519) of the API's [api] key; more than one while it is replaced.",
    ),
    cfg.StrOpt(
        "nova_public_key",
        default=str(KEYS / "nova.pub"),
        help="Public keys (PEM, Ed25519) of nova-scheduler's [fpga_pool] key; more than one while it is replaced.",
    ),
    cfg.StrOpt(
        "shard_by",
        default=BY_NUMBER,
        choices=[
            (BY_NUMBER, "into the number of shards given by the option shards; a new host joins the smallest"),
            (BY_ZONE, "one shard per availability zone of the agents"),
        ],
        help="Division of the pool into shards that are planned independently, each by one scheduler at a time. All "
        "schedulers must use the same value. Hosts stay in the shard that they joined first.",
    ),
    cfg.IntOpt(
        "shards",
        default=1,
        min=1,
        max=10_000,
        help="Number of shards with shard_by = number. Use at least the number of schedulers; with more shards plans "
        "are found faster but are longer.",
    ),
    cfg.BoolOpt(
        "split_batches",
        default=False,
        help="Divide every batch among the shards that can run it; otherwise one shard runs the whole batch.",
    ),
    cfg.Opt(
        "default_policy",
        type=PolicyName("batch", "online"),
        default="makespan",
        help="Policy for batches that do not specify one: a batch policy (entry point of group "
        "fpga_pool.policies.batch), which plans all jobs of a batch together, or online_policy.",
    ),
    cfg.Opt(
        "online_policy",
        type=PolicyName("online"),
        default="benefit_plus",
        help="Online policy (entry point of group fpga_pool.policies.online) of this pool. Batches that specify it "
        "are not planned: the policy assigns each of their jobs a slot when that is worthwhile, and the CPU of a "
        "host until then.",
    ),
    cfg.FloatOpt(
        "online_interval_s",
        default=0.5,
        min=0.01,
        help="Interval in seconds at which the online policy considers its jobs if no event triggers it.",
    ),
    cfg.BoolOpt(
        "plan_results",
        default=_DEFAULTS.plan_results,
        help="Whether plans include the transfer of results, and agents send results at the planned rates. Result "
        "sizes are those of the catalogue (result_size). NICs are assumed to be full duplex. If false, results "
        "are sent as fast as clients read them, and plans ignore their transfer.",
    ),
    cfg.FloatOpt(
        "online_patience_s",
        default=_DEFAULTS.online_patience_s,
        min=0.0,
        help="Time in seconds that an online job waits for a slot before it may run on a CPU ([agent] cpu_workers); 0 "
        "= its compute time on a slot.",
    ),
    cfg.BoolOpt(
        "load_ahead",
        default=_DEFAULTS.load_ahead,
        help="Whether empty slots load functions that the online policy expects to be requested, before a job needs "
        "them: from the first online job on, or from the start if default_policy is online_policy. No lease is "
        "taken, so instances, tasks and plans still get such a slot, at the latest after the load. Each slot "
        "receives at most one such load per minute. Disable it if every reconfiguration must be for an existing "
        "job.",
    ),
    cfg.Opt(
        "gang_policy",
        type=PolicyName("gang"),
        default="measy_plus",
        help="Policy (entry point of group fpga_pool.policies.gang) which assigns processors to gangs and moves them "
        "from the background to the foreground.",
    ),
    cfg.FloatOpt(
        "gang_migration_s",
        default=_DEFAULTS.gang_migration_s,
        min=0.0,
        help="Expected duration of the migration of a gang in seconds.",
    ),
    cfg.IntOpt(
        "tier_migrations",
        default=0,
        min=0,
        help="Maximum number of live migrations in Nova at a time, those of others included, with which servers of "
        "flavors with fpga_pool:tier=auto and fpga_pool:migrate=true move from the background to the foreground of "
        "another host; 0 = none. gang_policy decides which of them move. Requires [placement], and in [nova] the "
        "account of an administrator.",
    ),
    cfg.FloatOpt(
        "tier_migration_pause_s",
        default=3600.0,
        min=60.0,
        help="Minimum time in seconds between two live migrations of a server, failed ones included.",
    ),
    cfg.FloatOpt(
        "tier_migration_mbps",
        default=1000.0,
        min=1.0,
        help="Rate in Mbit/s at which the memory of a server is transferred. A live migration is expected to take "
        "gang_migration_s and this transfer; it is requested if the server is expected to end sooner by more.",
    ),
    cfg.Opt(
        "task_policy",
        type=PolicyName("task"),
        default="lattice_plus",
        help="Policy (entry point of group fpga_pool.policies.task) which assigns slots to tasks that need several.",
    ),
    cfg.FloatOpt(
        "task_patience_s",
        default=_DEFAULTS.task_patience_s,
        min=0.0,
        help="Time in seconds that a task waits for slots that are free at the same time. Then the slots that become "
        "free soonest are reserved for it, in order of arrival, and receive no other work. With 0 all tasks are "
        "served in this order, and the policy has no influence.",
    ),
    cfg.FloatOpt(
        "planning_share",
        default=0.02,
        min=0.001,
        max=1.0,
        help="Approximate search time of a batch policy, as a share of the lower bound on the batch's makespan, up to "
        "the effort in the section of the policy. Small batches are planned in about a millisecond. Raise it if "
        "batches take minutes and accelerators are scarce.",
    ),
    cfg.FloatOpt(
        "interval_s",
        default=1.0,
        min=0.01,
        help="Interval in seconds at which pending jobs, undelivered commands and silent hosts are checked if no "
        "event triggers the scheduler. Lower it only to detect faults sooner.",
    ),
    cfg.FloatOpt(
        "tenant_share",
        default=_DEFAULTS.tenant_share,
        min=0.001,
        max=1.0,
        help="Maximum share of a shard's slots, at least one slot, that the online jobs of one project may use at a "
        "time. With a value below 1 no project can starve the others; slots stay idle if a single project "
        "requests more.",
    ),
    cfg.FloatOpt(
        "claim_patience_s",
        default=_DEFAULTS.claim_patience_s,
        min=0.0,
        help="Maximum time in seconds that the boot of a virtual machine waits for a job that cannot be stopped to "
        "leave its slot. A slot that is busy for longer is reserved in Placement, so that no boot gets it.",
    ),
    cfg.IntOpt(
        "floor_slots",
        default=_DEFAULTS.floor_slots,
        min=0,
        help="Number of slots of each kind on each card that are reserved in Placement: they stay available for jobs "
        "of the pool, and no virtual machine gets them.",
    ),
    cfg.FloatOpt(
        "shard_timeout_s",
        default=5.0,
        min=0.5,
        help="Time in seconds without a sign of life after which a scheduler loses its shards to the others.",
    ),
    cfg.FloatOpt(
        "refit_interval_s",
        default=5.0,
        min=0.1,
        help="Interval in seconds at which time models are refitted; longer where that would take more than 0.5 % of a "
        "processor.",
    ),
    cfg.FloatOpt(
        "token_lifetime_s",
        default=300.0,
        min=1.0,
        help="Lifetime in seconds of a transfer token: the client must open the stream within this time.",
    ),
    cfg.IntOpt(
        "max_batch_jobs",
        default=_DEFAULTS.max_batch_jobs,
        min=1,
        help="Maximum number of jobs in a batch. Planning time and the size of API responses grow with it.",
    ),
    cfg.IntOpt(
        "max_input_bytes", default=_DEFAULTS.max_input_bytes, min=0, help="Maximum input size of one job, in bytes."
    ),
    cfg.IntOpt(
        "max_attempts",
        default=_DEFAULTS.max_attempts,
        min=1,
        help="Maximum number of attempts of a job. Attempts that end before anything was done for the job, by a drain "
        "or a fault of its slot, do not count. Raise it if cards fail often.",
    ),
    cfg.FloatOpt(
        "host_timeout_s",
        default=_DEFAULTS.host_timeout_s,
        min=0.1,
        help="Time in seconds without a heartbeat after which a host is considered lost and its jobs run elsewhere. "
        "It must cover several heartbeats. fpga-pool-standalone, whose hosts are threads of one process, has a default "
        "of 30 s.",
    ),
    cfg.FloatOpt(
        "input_timeout_s",
        default=_DEFAULTS.input_timeout_s,
        min=0.1,
        help="Time in seconds that a job waits for its input after its planned transfer before it fails.",
    ),
    cfg.FloatOpt(
        "replan_horizon_s",
        default=_DEFAULTS.replan_horizon_s,
        min=0.0,
        help="Jobs that start their transfer or computation within this time in seconds are not changed when the rest "
        "is replanned because a batch has arrived, a slot or host was lost, or progress differs from the plan. "
        "It must exceed the time that commands and clients take to follow a new plan.",
    ),
    cfg.FloatOpt(
        "replan_late_s",
        default=_DEFAULTS.replan_late_s,
        min=0.1,
        help="Delay in seconds of an input or a computation against the plan that triggers replanning of everything "
        "that has not started; triggered again each time the delay doubles.",
    ),
    cfg.FloatOpt(
        "dispatch_lead_s",
        default=_DEFAULTS.dispatch_lead_s,
        min=0.0,
        help="Time in seconds between the commit of a plan and its time 0, in which agents and clients receive it.",
    ),
    cfg.FloatOpt(
        "retention_days",
        default=0.0,
        min=0.0,
        help="Days after which schedulers remove work that has ended, as `fpga-pool-manage db purge` does; 0 = never.",
    ),
    cfg.StrOpt(
        "limits_from",
        default=POOL,
        choices=[
            (POOL, "limits that `fpga-pool quota set` gives to projects, else those of quota_*"),
            (
                KEYSTONE,
                "unified limits of the service, read as configured in [oslo_limit]; those of quota_* for "
                "resources that are not registered",
            ),
        ],
        help="Where the limits of projects come from.",
    ),
    _quota_opt(Resource.JOBS, "jobs that have not ended, those of tasks and pipelines included"),
    _quota_opt(Resource.INPUT_BYTES, "input of batches, tasks and pipelines that have not ended, in bytes"),
    _quota_opt(Resource.TASK_SLOTS, "slots requested by tasks that have not ended"),
    _quota_opt(Resource.GANG_PROCESSORS, "processes of gangs that have not ended"),
    _quota_opt(
        Resource.TICKETS,
        "transfer tickets younger than token_lifetime_s, used or not. Each scheduler counts those that it gave since "
        "its start",
    ),
    _quota_opt(
        Resource.REQUESTS_PER_S,
        "requests of the API per second, five seconds of them at once. Each process of the API counts those that it "
        "gets",
    ),
    _quota_opt(Resource.DESIGN_BYTES, "bitstreams of its designs that are stored in the database, in bytes"),
    cfg.StrOpt(
        "design_signers",
        help="File with the public keys (PEM, Ed25519) of those whose signatures of tenants' designs are trusted; none "
        "by default.",
    ),
    cfg.BoolOpt(
        "signed_designs_are_approved",
        default=False,
        help="Whether a design that a trusted signer has signed is approved when it is submitted; otherwise an "
        "operator decides on it, too.",
    ),
]


def check_default_policy(conf: cfg.ConfigOpts) -> None:
    """Raise InvalidInput if the default policy is an online policy other than that of this pool."""
    default, online, batch = conf.scheduler.default_policy, conf.scheduler.online_policy, policy_names("batch")
    if default not in (online, *batch):
        raise InvalidInput(
            f"[scheduler] default_policy: {default} is an online policy other than online_policy ({online}); "
            f"expected {online} or a batch policy: {', '.join(batch)}"
        )


def quota_limits(conf: cfg.ConfigOpts) -> QuotaLimits:
    """Return the configured limits, for projects that have none of their own."""
    return QuotaLimits(**{resource: conf.scheduler[f"quota_{resource}"] for resource in Resource})


def pool_settings(conf: cfg.ConfigOpts) -> PoolSettings:
    """Return the limits and times of the pool's rules as configured."""
    group = conf.scheduler
    configured = {field.name: group[field.name] for field in fields(PoolSettings)}
    shards = ShardRule(by=group.shard_by, number=group.shards, split_batches=group.split_batches)
    return PoolSettings(**configured | {"shards": shards})

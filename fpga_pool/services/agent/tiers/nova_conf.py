"""Options that nova-compute needs where pCPUs carry tiers, checked before guests start."""

from collections.abc import Collection
from pathlib import Path

from oslo_config import cfg

from fpga_pool.conf.drivers import parse_pcpus
from fpga_pool.model.exceptions import InvalidInput

#: One guest of each tier.
VCPUS_PER_PCPU = 2


def check_nova_conf(path: Path, pcpus: Collection[int]) -> None:
    """Refuse a nova.conf with which Nova would not give these pCPUs one vCPU of each tier.

    InvalidInput says what is to be set.
    """
    nova = cfg.ConfigOpts()
    nova.register_opts([cfg.StrOpt("cpu_shared_set"), cfg.StrOpt("cpu_dedicated_set")], "compute")
    nova.register_opts([cfg.FloatOpt("cpu_allocation_ratio")])
    try:
        nova(args=[], project="nova", default_config_files=[str(path)], default_config_dirs=[])
        shared, ratio = nova.compute.cpu_shared_set, nova.cpu_allocation_ratio
        dedicated = nova.compute.cpu_dedicated_set
    except (cfg.Error, ValueError) as error:
        raise InvalidInput(f"[tiers] nova_conf: {path}: {error}") from error
    wanted = ",".join(str(pcpu) for pcpu in sorted(pcpus))
    if parse_pcpus(shared or "") != frozenset(pcpus):
        raise InvalidInput(
            f"{path}: [compute] cpu_shared_set is {shared or 'not set'}; [tiers] pcpus is {wanted}: they must be "
            "equal, because guests of the shared set without a tier would run between the two tiers"
        )
    if parse_pcpus(dedicated or "") & frozenset(pcpus):
        raise InvalidInput(
            f"{path}: [compute] cpu_dedicated_set overlaps with [tiers] pcpus {wanted}; they must be disjoint"
        )
    if ratio != VCPUS_PER_PCPU:
        raise InvalidInput(
            f"{path}: cpu_allocation_ratio is {'not set' if ratio is None else ratio}; it must be"
            f" {VCPUS_PER_PCPU:.1f}: a pCPU carries a vCPU of each tier"
        )

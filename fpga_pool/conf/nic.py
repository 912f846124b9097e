"""The limits of a host's network card, as the operator gives them or the kernel knows them."""

from pathlib import Path

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput

#: The kernel's devices, and the speed of each that has one (Mbit/s; -1 or an error while that is unknown).
DEVICES = Path("/sys/class/net")


def nic_limits_bps(conf: cfg.ConfigOpts, devices: Path = DEVICES) -> tuple[float, float]:
    """Return egress and ingress limit of this host in bits per second; InvalidInput says which option is wanted."""
    return _limit_bps(conf, "egress_mbps", devices), _limit_bps(conf, "ingress_mbps", devices)


def _limit_bps(conf: cfg.ConfigOpts, option: str, devices: Path) -> float:
    given_mbps: float | None = conf.agent[option]
    if given_mbps is not None:
        return given_mbps * 1e6
    device: str | None = conf.agent.nic
    if device is None:
        raise InvalidInput(f"[agent] {option}: set it, or name the network device in [agent] nic to have it read")
    if not (devices / device).exists():
        known = ", ".join(sorted(path.name for path in devices.iterdir()))
        raise InvalidInput(f"[agent] nic: no network device {device!r} on this host; there is: {known}")
    speed_mbps = _speed_mbps(devices / device)
    if speed_mbps <= 0:
        raise InvalidInput(f"[agent] {option}: set it, the kernel does not know the speed of {device}")
    return speed_mbps * 1e6


def _speed_mbps(device: Path) -> int:
    try:
        return int((device / "speed").read_text())
    except (OSError, ValueError):  # no such file, a link that is down, or a virtual device
        return 0

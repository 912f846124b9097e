"""The learned placement paper: its deep Q-network, its policy for nodes, and models of metrics."""

_INSTALL = "pip install 'fpga_pool[learning]'"


def require_torch(name: str) -> None:
    """Raise a ValueError with the way to install torch where it is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ValueError(f"{name} needs torch: {_INSTALL}") from None

"""The optional library that the learned baselines need."""

_INSTALL = "pip install 'fpga_pool[learning]'"


def require_torch(name: str) -> None:
    """Raise a ValueError with the way to install torch where it is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ValueError(f"{name} needs torch: {_INSTALL}") from None

"""L2: the pool's objects on SQL; the only importer of SQLAlchemy."""

from fpga_pool.store.store import Store

__all__ = ["Store"]

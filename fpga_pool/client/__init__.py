"""The client library of the pool."""

from fpga_pool.client.api import PoolApi
from fpga_pool.client.filters import RunSettings
from fpga_pool.client.inputs import JobSpec, Subtask
from fpga_pool.client.outcome import BatchProgress, BatchResult, JobOutcome
from fpga_pool.client.pool import Client
from fpga_pool.client.runner import BatchRunner

__all__ = [
    "BatchProgress",
    "BatchResult",
    "BatchRunner",
    "Client",
    "JobOutcome",
    "JobSpec",
    "PoolApi",
    "RunSettings",
    "Subtask",
]

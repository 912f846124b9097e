"""L3: the pool for Python programs.

=============  ==============================================================================
`pool`         `Client`: everything the pool offers, and `run`, which does a whole batch
`api`          the calls of the REST API, typed
`session`      HTTP: times, retries, errors
`resources`    JSON of the API as the pool's objects
`inputs`       what a job computes on
`tickets`      leave to move bytes, for many streams at once
`stream`       the bytes of one job, on one connection
`runner`       a batch from its creation to its results
`outcome`      what came of a batch, and how far it is
=============  ==============================================================================
"""

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import JobSpec
from fpga_pool.client.outcome import BatchProgress, BatchResult, JobOutcome
from fpga_pool.client.pool import Client
from fpga_pool.client.runner import BatchRunner, RunSettings

__all__ = ["BatchProgress", "BatchResult", "BatchRunner", "Client", "JobOutcome", "JobSpec", "PoolApi", "RunSettings"]

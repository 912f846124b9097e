"""The one table of the REST API: each operation with its path, what it takes and what it answers.

Routes (`api.app`) and the OpenAPI document (`api.openapi`) are made of it; bodies and answers are derived from the
classes of the pool (`model.rest`), so a field of an object is declared there and nowhere here.
"""

from fpga_pool.api.operations.catalogue import CATALOGUE_OPERATIONS
from fpga_pool.api.operations.inventory import INVENTORY_OPERATIONS
from fpga_pool.api.operations.projects import PROJECT_OPERATIONS
from fpga_pool.api.operations.work import WORK_OPERATIONS

OPERATIONS = (*WORK_OPERATIONS, *INVENTORY_OPERATIONS, *CATALOGUE_OPERATIONS, *PROJECT_OPERATIONS)

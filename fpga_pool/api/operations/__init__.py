"""The table of all operations of the REST API, with their paths, request bodies, parameters and responses.

Routes (`api.app`) and the OpenAPI document (`api.openapi`) are generated from it. Bodies and responses are derived from
the model classes (`model.rest`), so fields of objects are declared only there.
"""

from fpga_pool.api.operations.catalogue import CATALOGUE_OPERATIONS
from fpga_pool.api.operations.inventory import INVENTORY_OPERATIONS
from fpga_pool.api.operations.projects import PROJECT_OPERATIONS
from fpga_pool.api.operations.work import WORK_OPERATIONS

OPERATIONS = (*WORK_OPERATIONS, *INVENTORY_OPERATIONS, *CATALOGUE_OPERATIONS, *PROJECT_OPERATIONS)

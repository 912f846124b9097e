"""Run migrations on the connection that `schema.migrate` passes."""

from alembic import context

from fpga_pool.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()

"""How the schema came to be; run by `store.schema`."""

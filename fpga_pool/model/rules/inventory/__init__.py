"""What operators see and change of the whole pool: cards, how hardware leaves, and designs of tenants."""

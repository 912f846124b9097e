"""What operators see and change of the whole pool: cards, and how hardware leaves."""

"""Batches that arrive, and plans that change, while others are carried out."""

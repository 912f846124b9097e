"""Batches: admission, planning, replanning."""

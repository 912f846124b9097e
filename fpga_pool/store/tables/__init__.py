"""The tables, and rows of them to values and back."""

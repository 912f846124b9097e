"""The pool's objects as frozen values."""

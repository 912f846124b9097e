"""What runs inside Nova; only here is Nova imported."""

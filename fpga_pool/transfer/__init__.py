"""How a job's input reaches the responder that computes it, and how the result comes back."""

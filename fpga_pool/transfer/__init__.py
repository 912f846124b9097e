"""Transfer of a job's input to its responder, and of the result back."""

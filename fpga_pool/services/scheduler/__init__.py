"""The pool scheduler: plans batches, commits, commands the agents, and mends what differs."""

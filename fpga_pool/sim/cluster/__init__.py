"""A simulated cluster of different nodes that execute pipelines, with interference between subtasks on one unit."""

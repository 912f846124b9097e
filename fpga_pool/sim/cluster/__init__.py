"""A simulated cluster of unlike nodes that execute pipelines, with interference between subtasks of one unit."""

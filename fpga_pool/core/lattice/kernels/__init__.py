"""Inner loops of the schedulers for tasks on linked FPGAs."""

"""Tasks on several linked FPGAs: files, workloads, and a simulator of tasks that arrive while FPGAs fail."""

"""Scheduling of tasks on several linked FPGAs (lattice paper): ranking by a partial order, schedules, and bounds."""

"""Tasks on several linked FPGAs (paper 004): ranking by a partial order, schedules, and bounds."""

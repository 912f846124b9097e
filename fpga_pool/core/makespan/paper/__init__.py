"""Planners as published in the makespan paper: CIM, NIM, NCJM and waves, with their baselines."""

"""Planners as published: CIM, NIM, NCJM and waves, with their baselines."""

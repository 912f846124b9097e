"""Drivers of DPR slots: load bitstreams, run accelerators."""

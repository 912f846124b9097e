"""Figures of the papers, reproduced with the code that runs in the cloud."""

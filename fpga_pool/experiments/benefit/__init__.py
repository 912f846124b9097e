"""Experiments of the benefit paper: figures 3 and 4, our policy beside the paper's, and the bound above them all."""

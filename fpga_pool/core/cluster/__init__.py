"""Placement of pipelines on a cluster (learned placement paper): views, cluster policies, node policies, bounds."""

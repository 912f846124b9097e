"""The learned placement paper: its deep Q-network, its policy for nodes, and models of metrics."""

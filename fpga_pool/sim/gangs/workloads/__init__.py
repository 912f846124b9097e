"""Models of workloads, by name: two exact ones, and two that are calibrated to what the paper says of its own."""

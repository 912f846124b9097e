"""Models of workloads, by name: two exact ones, and two calibrated to the figures that the two-tier paper prints."""

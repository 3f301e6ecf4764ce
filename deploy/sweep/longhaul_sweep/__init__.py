"""Runs points on clusters of this machine, keeps their rows and draws them: for `longhaul sweep` and for benchmarks."""

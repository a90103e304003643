"""The worker daemon: claims task instances, runs them as processes, and reports how they ended."""

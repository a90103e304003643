"""The runtime of a daemon: loops and threads, log, metrics, pid file, tolerance of outages."""

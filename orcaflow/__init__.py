"""The command line, and the helper that code in tasks imports."""

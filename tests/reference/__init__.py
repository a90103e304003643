"""Naive reference implementations: slow, plain, and sharing no code with their subjects."""

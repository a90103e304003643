"""Naive second opinions: slow, plain, and sharing no code with what they check."""

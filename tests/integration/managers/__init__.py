"""Managers of applications that answer like the real ones, with good days and bad ones."""

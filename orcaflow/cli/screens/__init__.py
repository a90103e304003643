"""Screens: live views on a terminal, and the lines that stand for them elsewhere."""

"""Measures whether work grows without making the rest slower. Each bench takes minutes."""

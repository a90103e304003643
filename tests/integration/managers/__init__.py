"""Fake application managers that answer like the real ones, with healthy and faulty modes."""

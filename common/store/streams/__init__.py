"""Datasets in PostgreSQL: locks on their intervals, segments, and the one way to publish these.

Masters grant locks, tasks publish, people read: so this is no side of the store, but a layer
between its sides and its base.
"""

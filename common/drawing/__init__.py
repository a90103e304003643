"""Drawings of DAGs in layers, left to right (Sugiyama and others 1981): pure and deterministic.

`ranks` gives every task its layer, `layers` cuts long edges into pieces between neighbours,
`ordering` sorts the layers so that few edges cross, `coordinates` places what is sorted, `picture`
joins them, and `blocks` shows a graph that is too large for that as one block for each rank.
"""

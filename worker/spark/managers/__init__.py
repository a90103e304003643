"""Those who rule the applications of a cluster, each asked by the REST API that it has.

`base` is what they promise; `choice` makes the right one. Only `rest` opens connections.
"""

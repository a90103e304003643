"""The HTTP API: a daemon whose routes call `operations`, and the only door to the web framework."""

"""Questions and orders, as functions with typed arguments and results, for every front end."""

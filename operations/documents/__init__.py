"""Documents: the JSON shapes that the command line and programs share."""

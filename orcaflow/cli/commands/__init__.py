"""The commands, one module a group; each imports what takes time where it is needed."""

"""The routes, a module for each resource: a route parses, calls one operation, and shows it."""

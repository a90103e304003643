"""DolphinScheduler's REST API: three dialects of it, served by one table of routes.

Each route calls the operations that the command line and `/api/v1` call; only parameters, names and
shapes are DolphinScheduler's.
"""

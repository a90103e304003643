"""Programs that do a task's work in a process of the task's own: SQL, procedures, HTTP.

Each is started as `python -P -m worker.runners.<name> JOB.json`. The daemon imports nothing of it,
so that what it needs (SQLAlchemy's drivers, httpx) costs the daemon neither time nor memory.
"""

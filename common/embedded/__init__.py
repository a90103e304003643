"""A real PostgreSQL and a real ZooKeeper, started from installed wheels, for one computer.

They listen on the loopback address alone, keep their data below `$ORCAFLOW_HOME` between starts,
and go on running when the process that started them ends. Nothing here knows about tables or
znodes.
"""

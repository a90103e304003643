"""Datasets as the tasks of this worker reach them: requests, their answers, folders and files.

A task has no right in the database and may run as another account. It asks its worker by a socket
(`orcaflow.datasets` is its end), writes files into a folder that it was given, and the worker
publishes them. Stands on `common.store.streams`; used by the daemon alone.
"""

"""The store of task logs (`log_store`): what outlives the hosts that ran the tasks.

`layout` names what lies in it, `program` is the process that reads and writes it, `process` is that
process as its parent sees it. Neither a daemon nor a command loads a client of a store itself: it
would stay in memory, wait for servers, and know credentials.
"""

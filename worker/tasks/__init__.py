"""The built-in task types: one module each, and nothing else.

A module's name in capital letters is the type's name in definitions. It has the type's
specification, `SPEC`, and `TASK_TYPE`, which makes its launcher; `common.task_types` finds both by
the name, so there is no list of types to keep. What types share is in `worker.launching`.
"""

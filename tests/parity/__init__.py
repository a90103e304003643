"""Scripts as people write them for `spark-submit`, and a check that PYSPARK tasks treat them alike.

`scripts` has the scripts by topic. Each is run by plain `spark-submit` and by a PYSPARK task of a real
cluster: both have to print the same marked lines, leave the same files below their working
directories, and end with the same exit code. `differences` is the only list of the scripts for which
that does not hold, each with its reason.
"""

"""What the master decides about tasks that no worker runs: branches taken and upstreams awaited.

Pure: definitions, parameters, outcomes and answers of the tables come in, verdicts go out. Nothing
here waits, looks or writes; `master.engine` and the loop of DEPENDENT tasks carry verdicts out.
"""

"""The real loops on tables and a registry in memory, with a clock that the simulator moves.

One seed is one plan of faults: daemons that die before or after any commit, that freeze, that start
again; a database that does not answer or leaves a commit in doubt; notifications and
reports that come late, twice or never. Then the faults end, and everything must end.
"""

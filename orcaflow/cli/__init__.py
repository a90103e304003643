"""The command line: commands, and the screens that follow a run or a complement."""

"""DolphinScheduler's Python gateway: what files of pydolphinscheduler ask and submit."""

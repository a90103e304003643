"""Attempts as processes of this host: started, watched, ended, adopted and read."""

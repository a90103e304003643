"""The master's loops, a module each: one public step, called by a service or the simulator."""

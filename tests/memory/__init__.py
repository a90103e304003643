"""The ports of the loops implemented in memory, for the simulator and for tests of loops."""

"""The ports of the loops fulfilled in memory, for the simulator and for tests of loops."""

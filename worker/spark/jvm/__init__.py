"""Java for Spark: commands, class archives, and the gateway of a private driver."""

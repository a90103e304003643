"""The words that every part shares: states, commands, definitions, instances, nodes. Pure."""

"""The master's statements: it owns process instances and decides what their attempts do."""

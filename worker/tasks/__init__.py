"""One module a task type, and the contract that they share."""

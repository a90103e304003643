"""The contract of task types (`base`), and the parts that several of them share."""

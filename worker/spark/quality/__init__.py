"""The rules of a DATA_QUALITY task: read, measured in one query, and evaluated."""

"""What people type and import: the command line and the helper for task code."""

"""The worker's statements: it claims attempts, reports their ends and notes their facts."""

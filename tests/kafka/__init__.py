"""A real broker of Kafka for tests."""

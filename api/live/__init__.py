"""Streams of events: one loop looks at what somebody watches, and tells each watcher of changes."""

"""ZooKeeper: sessions, membership, the mutex, the task queue and the kill queue."""

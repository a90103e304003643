"""The master daemon: turns commands into process instances and drives them to their end."""

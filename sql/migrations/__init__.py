"""Alembic's folder: `env.py` runs the revisions of `versions/`, and nothing else lives here."""

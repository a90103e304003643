"""The schema's history as migrations, and the readable whole (`schema.sql`); see README.md."""

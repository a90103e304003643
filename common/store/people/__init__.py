"""The statements of people and programs: views of the tables, and requests as rows."""

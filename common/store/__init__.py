"""Everything that is kept in PostgreSQL, one module a subject; the only users of SQLAlchemy.

A function takes a `Connection` and answers one question or makes one change; the transaction
(`with engine.begin()`) stands where the promise is made, at the caller. Rows become dataclasses at
once. No decision is taken here.
"""

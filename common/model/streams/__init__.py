"""Specifications of streams: values, and the reader of the JSON in which Druid's users write them.

Pure. Used by `master.supervisors`, which decides by them, and, once they exist, by the API server
that takes them and the stream task that carries them out.
"""

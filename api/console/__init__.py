"""The console: pages for people, made on the server out of operations alone.

A page is a whole document that works without scripts; `static/live.js` then follows the events of
`/api/v1/events`. Pages have no door of their own to the tables.
"""

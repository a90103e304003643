"""One module a revision, numbered; an applied one is never edited, a change is a new number."""

"""The table of lives: every way a session begins, ends, waits and goes on, against a plain reading of the specification."""

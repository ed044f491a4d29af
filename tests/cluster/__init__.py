"""Real processes under a real Ray: starting, dying, coming back, stopping."""

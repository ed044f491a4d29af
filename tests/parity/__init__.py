"""docs/parity.md holds: each row names tests that are there, and nothing is there that no page names."""

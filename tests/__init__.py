"""Tests, mirroring the floors. A package on purpose: another distribution may put its own `tests` on the path."""

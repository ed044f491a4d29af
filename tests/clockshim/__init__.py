"""Moved clocks for processes of tests: steps of the wall clock and reboots, without touching the machine's own."""

"""The gates: programs that put a real broker through what its contract promises and print PASS or FAIL with a figure."""

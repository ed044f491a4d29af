"""Whether a message becomes dearer as a broker holds more of something, or runs on more processes: `python -m benchmarks.growth`."""

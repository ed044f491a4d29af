"""Real brokers under test: the one place that starts them, clients that drive them, and the checks of what they did."""

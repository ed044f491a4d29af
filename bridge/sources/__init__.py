"""Where bridges bring messages from: the connections to other brokers whose clients they are."""

"""The durable-session floor: cursors over streams, windows, acknowledgements, subscriptions.  Pure code."""

"""The doors of a gateway: listening sockets, and what a connection passes before MQTT begins (docs/listeners.md)."""

"""The MQTT floor: connections, their protocol machines, ephemeral sessions and live routing.  Pure code."""

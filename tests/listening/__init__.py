"""Sockets, transports and limits in front of MQTT."""

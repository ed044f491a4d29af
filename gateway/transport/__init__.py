"""What lies between a socket and MQTT's bytes, without any socket: WebSocket, the PROXY header, and limits on who comes in."""

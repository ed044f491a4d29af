"""The process in which bridges run (docs/bridge.md): each is a client of this broker on one side, and a target on the other."""

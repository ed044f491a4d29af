"""Bridges: stored messages are carried elsewhere, at the pace of their target (docs/bridge.md).

`core` decides, without a clock or a socket; `targets` are the connections to what messages are carried to; the process they run in is
actors.bridge.
"""

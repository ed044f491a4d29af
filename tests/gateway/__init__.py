"""Tests of the gateway core: events in, effects out, through real packets."""

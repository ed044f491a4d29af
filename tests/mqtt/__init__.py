"""Tests of the words of MQTT."""

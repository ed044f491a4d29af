"""Tests of the floor of rights: identities, rules and what they come to."""

"""Tests of the load generator and of the commands around it: what they count must be right before what they measure means anything."""

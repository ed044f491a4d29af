"""Stores as former commits wrote them: every later commit opens them (tests/contracts/test_golden_stores.py)."""

"""Of chaos: the ledger fed by hand, and the whole oracle against a broker that is broken on purpose."""

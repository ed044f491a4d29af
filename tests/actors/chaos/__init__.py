"""Of faults on purpose: their files, what processes make of them, and who ends them."""

"""Sessions in memory: they outlive their connections and gateways, but not the session actor that has them."""

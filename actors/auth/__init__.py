"""Finding out who somebody is, for one gateway: passwords, SCRAM, tokens, certificates, and the questions to a plugin."""

"""Questions about a running broker: clients, sessions, subscriptions, what is stored; for commands and for whoever serves them over HTTP.

Plain asynchronous functions over one `Asking`, which has the links; what they give is dataclasses.  docs/inquiry.md says which process
knows what, and what an answer means when one of them is away.
"""

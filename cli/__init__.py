"""The command line: one command, `holdfast`. Talks to people; what it does is done by the floors below."""

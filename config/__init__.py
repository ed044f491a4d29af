"""Configuration: what can be set, where a setting comes from, and what it means.

`config.schema` holds the frozen models, `config.load` reads file, environment and command line, `config.docs` writes the page.
"""

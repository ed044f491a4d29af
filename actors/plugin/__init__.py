"""The plugin: a process of its own, in which code of others says who somebody is, and what he may do (docs/access.md, "Plugin")."""

"""Backups of a data directory: taken beside a running broker or of a stopped one, and put back. docs/backup.md has the argument.

    manifest    what a backup says of itself; which backups a directory holds
    copying     bytes from one file to another, summed up, at a bounded pace
    taking      the stores of all shards, each at one moment, into a new backup
    restoring   a backup into an empty data directory, as a new incarnation of its site

Errors meant for people are BackupError, one sentence each.
"""

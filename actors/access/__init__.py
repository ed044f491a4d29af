"""What the processes of a run are told about access, by files in the run directory (docs/access.md, "Revocation").

    access.json       the bundle in force (access.bundle): rules, and which password file
    passwords-SHA     the password file in force, a copy; SHA: how the digest of what is in it begins
    NAME.access       the version that process NAME goes by
    secrets.json      what lies at the places that settings name

    sources     a file of rules and a password file, looked at and found good or not
    publishing  makes the bundle in force of them
    watch       how a process comes to know it
    secrets     how a process comes to know a secret

Always holds: a file that is wrong changes nothing; where none was ever right, nothing is allowed.
"""

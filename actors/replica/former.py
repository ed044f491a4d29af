"""What people are told of a copy that was made anew while another one of its site is counted on: its disk was lost, or it was put aside."""

from __future__ import annotations

from shards.replication.configuration import Configuration, Rid


def told_of_former(shard: int, now: Configuration, former: Rid) -> str:
    """One sentence, as an alarm.  former: who is counted on; this site has it no more."""
    begun = f"this site's copy of shard {shard} is a new one, and {former} is counted on"
    if now.isr | now.elr == {former}:
        return (
            f"{begun}: only that one has all that was acknowledged, so nobody leads this shard. Bring back the disk it is on, "
            f"or go on without what only it has, from a replica that is behind: `holdfast ds force-leader {shard} SITE --accept-data-loss` "
            'says which one (docs/sites.md, "A majority is gone")'
        )
    return f"{begun}: it is made from the others, and takes that place by itself when it has caught up with who leads"

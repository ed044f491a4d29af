"""Where the broker is looked at and told what to do: the admin process.

Only declares and checks.
"""

from __future__ import annotations

from config.fields import Flag, Section, setting
from config.values import Bind


class Admin(Section):
    enable: Flag = setting(
        True,
        "Whether the admin process runs, which serves `/metrics` (docs/metrics.md) and `/api` (docs/rest.md). Nothing that serves clients "
        "waits for it.",
        effect="at once",
    )
    listen: Bind = setting(
        Bind("127.0.0.1:18083"),
        "Where it listens, for HTTP. Only this machine by default: on any other address `/api` wants an API key (docs/rest.md), and "
        "`/metrics` is for everybody. A port that somebody has keeps no broker from starting: an alarm says so, and it is tried again. "
        "Port 0 takes a free port; `holdfast status` says which.",
    )
    read_without_key: Flag = setting(
        True,
        "Whether who is on this machine may read `/api` without an API key, while `admin.listen` is on loopback; a change always takes "
        "one. Off where a proxy on this machine lets others in, or where not everybody on it may see what clients do.",
        effect="at once",
    )

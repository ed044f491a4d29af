"""Where the broker is looked at and, later, told what to do: the admin process.

Only declares and checks.
"""

from __future__ import annotations

from config.fields import Flag, Section, setting
from config.values import Bind


class Admin(Section):
    enable: Flag = setting(
        True,
        "Whether the admin process runs, which serves `/metrics` (docs/metrics.md). Nothing that serves clients waits for it.",
        effect="at once",
    )
    listen: Bind = setting(
        Bind("127.0.0.1:18083"),
        "Where it listens, for HTTP. Only this machine by default: who comes is not asked who he is yet. A port that somebody has "
        "keeps no broker from starting: an alarm says so, and it is tried again. Port 0 takes a free port; `holdfast status` says which.",
    )

"""Where the broker is looked at and told what to do: the admin process.

Only declares and checks.
"""

from __future__ import annotations

from config.fields import Flag, Section, setting
from config.values import Bind, Duration


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
    survey_interval: Duration = setting(
        Duration.parse("60s"),
        "How long after one survey of all durable sessions the next begins: how far they are behind, and when they lose something "
        "(docs/metrics.md). It takes a tenth of a core in the admin process for as long as it needs, some 20 s for 50,000 sessions, and "
        "asks the shards 100 sessions at a time. infinity: never.",
        ge=1000,
        effect="at once",
    )
    name_clients: Flag = setting(
        False,
        "Whether `/metrics` names the clients of the sessions that are furthest behind, in the label `client`. Off: it tells ranks and "
        "figures only, since nobody is asked there who he is; `holdfast sessions lag` names them.",
        effect="at once",
    )

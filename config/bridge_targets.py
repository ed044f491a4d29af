"""Where bridges carry messages: one section for each kind of target (docs/bridge.md).

Only declares.  Of a bridge the section of its `type` is used; its `wanting` says what is not there yet.  A default that cannot be right,
such as an empty address, stands for "has to be given".
"""

from __future__ import annotations

import json
import re

from config.fields import Section, setting
from config.values import Size

_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_OPTIONS_ALLOWED = """a JSON object as text, such as '{"servers": "127.0.0.1:9092"}'"""


class Jsonl(Section):
    path: str = setting(
        "",
        "The file that lines are appended to, one JSON object for each message; relative to the data directory. Its directory is "
        "made. One that is full gets a number behind its name.",
        allowed="a path",
        effect="at once",
    )
    file_bytes_max: Size = setting(
        Size.parse("256MiB"), "A file that has so many bytes is closed, and the next one begun.", ge=4096, effect="at once"
    )

    def wanting(self) -> tuple[str, str] | None:
        return None if self.path and "\0" not in self.path else ("path", 'a path, such as "out/messages.jsonl"')


class Plugin(Section):
    target: str = setting(
        "",
        'The class to load as the target, which has to be importable where the broker runs (docs/bridge.md, "Targets of your own").',
        allowed='"module:Class"',
        effect="at once",
    )
    options: str = setting("{}", "What that class is given as its settings.", allowed=_OPTIONS_ALLOWED, effect="at once")

    def wanting(self) -> tuple[str, str] | None:
        if not _CLASS.fullmatch(self.target):
            return "target", '"module:Class"'
        try:
            fine = isinstance(json.loads(self.options), dict)
        except ValueError:
            fine = False
        return None if fine else ("options", _OPTIONS_ALLOWED)

"""300 names that somebody chose in order to be taken for somebody else, to get out of his level, or to spoil a log or a file.

For user names, client ids, attributes, topics and claims.  Those with U+0000 can be in a token or a header, never in a packet of MQTT.
"""

from __future__ import annotations

from itertools import product
from typing import Final

COUNT: Final = 300
VICTIM: Final = "meter-7"
"""The honest one, who is in it too."""

_WORDS: Final = (
    *(
        "+",
        "#",
        "/",
        "//",
        "$",
        "%",
        "*",
        "?",
        "",
        ".",
        "..",
        "~",
        "-",
        "--",
        "\\",
        "|",
        "&",
        ";",
        "`",
        "'",
        '"',
        "@",
        ":",
        ",",
        "=",
        "!",
        "^",
    ),
    *("$SYS", "$share", "$share/g/#", "$SYS/#", "$queue", "$delayed/1/a", "$$", "$sys"),
    *(
        "${client_id}",
        "${user}",
        "${attr.site}",
        "${attr.}",
        "${",
        "$}",
        "{}",
        "%c",
        "%u",
        "%%",
        "%2F",
        "%2f",
        "%252F",
        "%23",
        "%2B",
        "%24SYS",
    ),
    *("../../etc/passwd", "/etc/shadow", "a/../b", "file:///etc/passwd", "env:HOME", "C:\\con", "nul", "con.txt", "-rf", "--help"),
    *("' OR '1'='1", "admin'--", "1; DROP TABLE users", "<script>alert(1)</script>", "{{7*7}}", "$(id)", "`id`", "%s%n", "%x" * 8),
    *("root", "admin", "anonymous", "Anonymous", "null", "None", "true", "0", "-1", "1e309", "NaN", "pipeline/x", "pipeline", "*admin*"),
    *("user:hash", "$argon2id$v=19$m=1", "$7$101$x$y", "$6$rounds=1$x$y", "# a comment", "[[rule]]", 'allow = ["all"]', '"""', "'''"),
    *(
        '{"user": "admin"}',
        '{"sub":"admin"}',
        "eyJhbGciOiJub25lIn0..",
        "n,,n=admin,r=x",
        "n=a=2Cb",
        "=2C",
        "=3D",
        "CN=admin,O=x",
        "/CN=admin",
    ),
)
_MARKS: Final = (
    *("\0", "\x01", "\t", "\n", "\r", "\r\n", "\x1b[31m", "\x7f", "\x80", "\x85", "\x9f", "\xa0", "\xad"),
    *("\u200b", "\u200d", "\u202e", "\u2028", "\u2029", "\ufeff", "\ufffd", "\uffff", "\ufdd0", "\U0001f600", "\U0010ffff"),
    *("\u0301", "\u2044", "\u2215", "\uff0b", "\uff03", "\uff0f", "\u0430"),
)
_LIKE_THE_VICTIM: Final = (
    *(
        "meter-7 ",
        " meter-7",
        "Meter-7",
        "METER-7",
        "meter-7.",
        "meter-77",
        "meter-",
        "meter-*",
        "meter-+",
        "meter_7",
        "meter%2D7",
        "meter\u20107",
    ),
    *(
        "meter-7/",
        "/meter-7",
        "meter-7/#",
        "meter-7/+",
        "+/meter-7",
        "meter-7/../meter-8",
        "x/meter-7",
        "meter-7%2F",
        "meter-7%00",
        "meter-\uff17",
    ),
)
_UNLIKE_IN_FORM: Final = (
    "caf\u00e9",
    "cafe\u0301",
    "\u212b",
    "\u00c5",
    "A\u030a",
    "\u017f",
    "\ufb01",
    "fi",
    "\u0130",
    "i\u0307",
    "\u1e9e",
    "\u00df",
    "ss",
)
_LONG: Final = ("a" * 256, "a" * 257, "/" * 256, "+/" * 128, "%" * 256, "$" * 256, "\u20ac" * 86, "a" * 1024, "a" * 1025, "%" * 1024)


def _all() -> list[str]:
    placed = [form.format(mark) for mark, form in product(_MARKS, ("{}", "meter-7{}", "{}meter-7", "meter{}7"))]
    found = dict.fromkeys((VICTIM, *_WORDS, *_LIKE_THE_VICTIM, *_UNLIKE_IN_FORM, *_LONG, *placed))
    woven = [f"{left}{mark}{right}" for left, mark, right in product(("a", "$", "%2"), "/+#%$", ("b", "F", "$"))]
    found.update(dict.fromkeys(woven))
    return list(found)


HOSTILE_NAMES: Final = tuple(_all()[:COUNT])

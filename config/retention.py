"""Which topics are kept for how long, and which are stored though no session wants them: classes, and filters that are captured.

Only declares and checks.  What a class means is decided in `shards.classes`, which asks the same things of a map from elsewhere; it
stands above this floor, so the form of a topic filter is looked at here once more.
"""

from __future__ import annotations

import re

from config.fields import Section, conflict, setting
from config.values import Duration

CLASSES_MAX = 8
FILTERS_MAX = 1000
CLASSES_ALLOWED = (
    f"a list of at most {CLASSES_MAX} classes, each with a period from 1s on, "
    'such as [{name = "alarms", filter = "alarms/#", period = "90d"}]'
)
FILTERS_ALLOWED = f'a list of at most {FILTERS_MAX} topic filters, such as ["alarms/#", "meters/+/state"]'
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_TOPIC_BYTES_MAX = 65_535
_LEVELS_MAX = 128


class RetentionClass(Section):
    name: str = setting(..., "What it is called in logs and tools.", allowed="1 to 32 of a-z, 0-9, _ and -")
    filter: str = setting(..., "Topics that it matches are in this class, unless an earlier one has them.", allowed="a topic filter")
    period: Duration = setting(..., "How long messages of these topics are kept.", ge=1000)


def check_classes(key: str, classes: tuple[RetentionClass, ...]) -> None:
    if len(classes) > CLASSES_MAX:
        raise conflict(key, f"at most {CLASSES_MAX} classes, and there are {len(classes)}")
    names: set[str] = set()
    for each in classes:
        if not _NAME.fullmatch(each.name):
            raise conflict(key, f'names of 1 to 32 of a-z, 0-9, _ and -, and "{each.name}" is none')
        if each.name == "default":
            raise conflict(key, 'no class with the name "default", as that is the class of all topics that no filter matches')
        if each.name in names:
            raise conflict(key, f'every name once, and "{each.name}" is there twice')
        names.add(each.name)
        check_filter(key, each.filter)


def check_filters(key: str, filters: tuple[str, ...]) -> None:
    if len(filters) > FILTERS_MAX:
        raise conflict(key, f"at most {FILTERS_MAX} topic filters, and there are {len(filters)}")
    for each in filters:
        check_filter(key, each)


def check_filter(key: str, text: str) -> None:
    if text.startswith("$share/"):
        raise conflict(key, f'topic filters without $share, and "{text}" begins with it')
    if not is_topic_filter(text):
        raise conflict(key, f'topic filters such as "alarms/#", and "{text}" is none')


def is_topic_filter(text: str) -> bool:
    """As mqtt.topics.check_topic_filter says."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return False
    if not raw or len(raw) > _TOPIC_BYTES_MAX or b"\0" in raw:
        return False
    levels = text.split("/")
    if len(levels) > _LEVELS_MAX or any(("+" in level and level != "+") or ("#" in level and level != "#") for level in levels):
        return False
    return "#" not in levels[:-1]

"""Each class of faults that has opened or broken brokers has its tests, in bug_classes.toml and, where no suite has them, here."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from access.rules import compile_access
from access.rules_file import parse_rules
from gateway.events import AccessChanged, Congested, ToShard
from mqtt.packets import Connack, Connect, PublishRun, Suback, Subscribe, Subscription, Will
from mqtt.reason import ReasonCode
from tests.gateway.scripted import Shell, message, subscribe

ROOT = Path(__file__).parents[2]
CLASSES = tomllib.loads(Path(__file__).with_name("bug_classes.toml").read_text(encoding="utf-8"))["class"]
EVERYTHING = compile_access(1, parse_rules("version = 1\n[[rule]]\nallow = ['all']\ntopics = ['#']\n"), claims=False, decides=False)


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: str(each["name"].partition(":")[0]))
def test_every_class_of_faults_has_tests_that_are_there(each: dict[str, list[str]]) -> None:
    """One at least, by its file and its name."""
    assert each["tests"]
    for name in each["tests"]:
        path, _, test = name.partition("::")
        found = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        assert any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test for node in found), name


def test_the_ten_classes_are_all_there() -> None:
    """Each once."""
    assert len(CLASSES) == len({each["name"] for each in CLASSES}) == 10


@pytest.mark.parametrize("topic", ["$CONTROL/dynamic-security/v1", "$MQTT/x", "$anything"])
def test_a_rule_about_everything_does_not_open_topics_that_begin_with_a_dollar(topic: str) -> None:
    """Neither for a PUBLISH, nor for a SUBSCRIBE, nor by way of a will, which nobody looks at again once it is accepted."""
    shell = Shell()
    shell.turn(AccessChanged(EVERYTHING))
    client = shell.online("c", 5)
    client.send(message(topic.encode(), b"", 1, 1))
    client.send(Subscribe(2, (Subscription(topic.encode()), Subscription(b"$share/g/" + topic.encode()))))
    shell.answer()
    (suback,) = [packet for packet in client.take() if isinstance(packet, Suback)]
    assert suback.reasons == (ReasonCode.NOT_AUTHORIZED,) * 2 and not shell.homes.stored
    other = shell.client(5)
    effects = other.send(Connect(5, "w", True, will=Will(topic.encode(), b"")))
    assert other.take() == [Connack(False, ReasonCode.NOT_AUTHORIZED)]
    assert not [effect for effect in effects if isinstance(effect, ToShard)]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_is_frozen_keeps_nothing_from_others(qos: int) -> None:
    """It does not read, and acknowledges nothing; the publisher is answered, and everybody else has everything."""
    shell = Shell()
    frozen = shell.online("frozen", 5, receive_maximum=1)
    others = [shell.online(f"s{number}", 5) for number in range(3)]
    for client in (frozen, *others):
        subscribe(client, b"t", qos)
    shell.turn(Congested(frozen.socket, True))
    publisher = shell.online("p", 5)
    for number in range(1, 31):
        publisher.send(message(b"t", b"%d" % number, qos, number if qos else 0))
        shell.answer()
    assert qos == 0 or len(publisher.take()) == 30
    for client in others:
        assert len([packet for packet in client.take() if isinstance(packet, PublishRun)]) == 30

"""A file of rules in force in a gateway: what somebody wrote is what clients get."""

from __future__ import annotations

import pytest

from access.bundle import Bundle
from gateway.events import AccessChanged
from mqtt.packets import Ack, PublishRun, Suback, Subscribe, Subscription
from mqtt.reason import ReasonCode
from tests.access.names import HOSTILE_NAMES
from tests.gateway.scripted import Client, Shell, message, subscribe

R = ReasonCode
RULES = """
version = 1

[[rule]]
deny = ["subscribe"]
topics = ["plant/secret/#"]

[[rule]]
allow = ["publish"]
topics = ["meters/${client_id}/#"]

[[rule]]
allow = ["all"]
topics = ["plant/#"]
"""


def under(rules: str) -> Shell:
    shell = Shell()
    force(shell, 1, rules)
    return shell


def force(shell: Shell, version: int, rules: str) -> None:
    shell.turn(AccessChanged(Bundle.from_json(Bundle(version, rules).to_json()).access()))


def answered(client: Client, topic: bytes) -> ReasonCode:
    """To a QoS 1 message on it."""
    client.send(message(topic, b"m", 1, 1))
    client.shell.answer()
    (answer,) = client.take()
    return answer.reason if isinstance(answer, Ack) else R.SUCCESS


def test_a_client_writes_below_its_own_name_only() -> None:
    """Nor to the topics of another by a name that looks like them."""
    shell = under(RULES)
    shell.homes.durable_filters.append(b"#")
    meter, twin = shell.online("meter-7"), shell.online("meter-7/x")
    assert answered(meter, b"meters/meter-7/x/t") is R.SUCCESS
    assert answered(meter, b"meters/meter-8/t") is answered(meter, b"other/t") is R.NOT_AUTHORIZED
    assert answered(twin, b"meters/meter-7/x/t") is R.NOT_AUTHORIZED
    assert answered(twin, b"meters/meter-7%2Fx/t") is R.SUCCESS


def test_what_is_denied_within_what_is_granted_does_not_arrive() -> None:
    """The subscription is granted; from the next version of the rules on, more is kept back."""
    shell = under(RULES)
    reader, writer = shell.online("reader"), shell.online("writer")
    subscribe(reader, b"plant/#")

    def arrived() -> list[bytes]:
        writer.send(*[message(topic, b"") for topic in (b"plant/1", b"plant/secret/1", b"plant/2")])
        return [topic for each in reader.take() if isinstance(each, PublishRun) for topic in each.topics]

    assert arrived() == [b"plant/1", b"plant/2"]
    force(shell, 2, RULES.replace("plant/secret/#", "plant/2"))
    assert arrived() == [b"plant/1", b"plant/secret/1"]
    force(shell, 3, "version = 1")
    assert arrived() == []


@pytest.mark.parametrize("topic_filter", [b"#", b"plant/secret/1", b"meters/+/t", b"$share/g/plant/#"])
def test_a_filter_that_no_rule_grants_as_a_whole_is_refused(topic_filter: bytes) -> None:
    """A shared one also when a part of it is denied: its member would lose that for its group."""
    client = under(RULES).online("reader")
    client.send(Subscribe(1, (Subscription(topic_filter), Subscription(b"plant/open/#"))))
    (suback,) = [each for each in client.take() if isinstance(each, Suback)]
    assert suback.reasons == (R.NOT_AUTHORIZED, R.SUCCESS)


def test_a_client_id_that_somebody_chose_gets_nothing_of_others() -> None:
    """Each of those that a packet can carry."""
    shell = under(RULES)
    shell.homes.durable_filters.append(b"#")
    for name in HOSTILE_NAMES:
        # One that begins with $share/ is no client's.
        if name and "\0" not in name and name != "meter-7" and not name.startswith("$share/"):
            assert answered(shell.online(name), b"meters/meter-7/t") is R.NOT_AUTHORIZED, name

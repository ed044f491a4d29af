"""What the tests of shared groups have in common: their groups, members and messages."""

from __future__ import annotations

from mqtt.packets import PublishRun
from tests.gateway.scripted import Client, Shell, message, subscribe

GROUP = b"$share/g/a"
OTHER = b"$share/h/a"


def members(shell: Shell, count: int, qos: int = 1, receive_maximum: int = 100) -> list[Client]:
    """So many members of GROUP, whose SUBACK is taken away."""
    clients = [shell.online(f"{shell.core.name}-m{number}", 5, receive_maximum=receive_maximum) for number in range(count)]
    for client in clients:
        subscribe(client, GROUP, qos)
    return clients


def payloads(client: Client) -> list[bytes]:
    """What came, which is messages and nothing else."""
    taken = client.take()
    runs = [packet for packet in taken if isinstance(packet, PublishRun)]
    assert len(runs) == len(taken), f"only messages were expected: {taken}"
    return [run.bodies[0][1:] for run in runs]


def publish(shell: Shell, publisher: Client, *numbers: int, qos: int = 1) -> None:
    """Numbered messages to the topic of GROUP and OTHER, answered."""
    publisher.send(*[message(b"a", b"%d" % number, qos, number if qos else 0) for number in numbers])
    shell.answer()

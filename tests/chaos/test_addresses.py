"""How addresses of a broker are written."""

from __future__ import annotations

import pytest

from chaos.addresses import Address, AddressUnknown


def test_an_address_is_read_as_it_is_written() -> None:
    """With a port or the usual one, with TLS or without, of either family."""
    for text, wanted in {
        "localhost:1884": Address("localhost", 1884),
        "mqtt://h": Address("h", 1883),
        "mqtts://h": Address("h", 8883, True),
        "mqtts://[::1]:8884": Address("::1", 8884, True),
        "[::1]": Address("::1", 1883),
    }.items():
        assert Address.parse(text) == wanted and Address.parse(str(wanted)) == wanted


@pytest.mark.parametrize("text", ["", ":1883", "h:0", "h:99999", "h:x", "http://h:1", "mqtt://h:1/x"])
def test_what_is_no_address_is_a_sentence(text: str) -> None:
    """Which says how one is written."""
    with pytest.raises(AddressUnknown, match=r"is no address; wanted is host:port"):
        Address.parse(text)

"""Which register the settings ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.register.chosen import register_of
from actors.register.etcd import EtcdRegister
from config.register import Register
from shards.replication.ports import Outcome
from shards.replication.register import NO_VALUE
from tests.actors.register.etcds import asked, etcds, ready


async def test_without_endpoints_it_is_the_file_of_this_site(tmp_path: Path) -> None:
    """Made where it is not there yet."""
    one = register_of(Register(), tmp_path / "register", {})
    assert await one.cas("key", NO_VALUE, b"x") is Outcome.DONE
    await one.close()
    assert (tmp_path / "register" / "register").exists()


@pytest.mark.slow
@pytest.mark.needs("etcd")
async def test_with_endpoints_it_is_etcd_with_the_user_of_the_settings(tmp_path: Path) -> None:
    """The password is what lies at the place that is named."""
    with etcds(1) as (member,):
        await ready([member])
        await asked(member, "/v3/auth/user/add", {"name": "root", "password": "of root"})
        await asked(member, "/v3/auth/user/grant", {"user": "root", "role": "root"})
        await asked(member, "/v3/auth/enable", {})
        settings = Register.model_validate(
            {"endpoints": [member.endpoint], "username": "root", "password": "env:WORD", "request_timeout": "20s"}
        )
        one = register_of(settings, tmp_path / "register", {"env:WORD": b"of root"})
        assert isinstance(one, EtcdRegister)
        assert await one.cas("key", NO_VALUE, b"x") is Outcome.DONE
        await one.close()
    assert not (tmp_path / "register").exists()

"""Plugins that were written for amqtt, as they are: amqtt's own manager loads them, and we ask it what its broker would.

    authenticate     one False is a no, else one True is a yes, else no
    topic_filtering  publish, subscribe and receive: one False is a no, else one True is a yes; None is no answer

Needs the package amqtt, which is the operator's to install: it comes with his plugins.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from access.asked import Asked
from access.login import Login
from actors.plugin.loading import PluginRefused
from actors.plugin.port import Verdict

_NAMESPACE: Final = "holdfast.plugins"


class AmqttPlugins:
    """All of them, as one."""

    def __init__(self, names: Sequence[str], settings: Mapping[str, Any]) -> None:
        """Raises PluginRefused."""
        try:
            contexts = importlib.import_module("amqtt.contexts")
            manager = importlib.import_module("amqtt.plugins.manager")
            self._session_class = importlib.import_module("amqtt.session").Session
        except ImportError:
            raise PluginRefused('access.plugin.kind is "amqtt", and the package amqtt is not installed') from None
        self._actions = contexts.Action
        context = contexts.BaseContext()
        context.config = {"plugins": {name: settings.get(name) or {} for name in names}}
        try:
            self._manager = manager.PluginManager(_NAMESPACE, context)
        except Exception as error:  # code of others
            raise PluginRefused(f"plugins of amqtt cannot be loaded ({', '.join(names)}): {_kind(error)}") from None

    async def start(self, settings: Mapping[str, object]) -> None:
        """They were started when they were loaded."""

    async def login(self, login: Login) -> Verdict | None:
        session = self._session(login.client, login.user)
        session.remote_address = login.address
        if login.password is not None:
            try:
                session.password = login.password.decode()
            except UnicodeDecodeError:
                return Verdict(False)
        answers = await self._manager.map_plugin_auth(session=session)
        return Verdict(_is_yes(answers.values()))

    async def may(self, asked: Asked) -> bool | None:
        session = self._session(asked.client, asked.who.user or None)
        answers = await self._manager.map_plugin_topic(session=session, topic=asked.topic, action=self._actions(asked.action))
        return _is_yes(answers.values())

    def _session(self, client: str, user: str | None) -> Any:
        session = self._session_class()
        session.client_id, session.username = client, user
        session.is_anonymous = user is None
        return session


def _is_yes(answers: Iterable[bool | None]) -> bool:
    said = [answer for answer in answers if answer is not None]
    return bool(said) and all(said)


def _kind(error: BaseException) -> str:
    """amqtt says with one error that another was there."""
    return type(error).__name__ if error.__cause__ is None else f"{type(error).__name__} by {type(error.__cause__).__name__}"

"""From the configuration to the settings of the desk.

Not in actors.settings, which shards read too: they must not load what checks tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from access.bundle import Bundle
from access.tokens import TokenOptions
from actors.access.publishing import passwords_path
from actors.auth.settings import AuthSettings, PasswordSettings, PluginSettings, TokenSettings
from config.access import JwtAccess, PluginAccess
from config.schema import Config


def auth_settings(config: Config, bundle: Bundle, secrets: Mapping[str, bytes], run_dir: Path) -> AuthSettings:
    """secrets: what lies at the places that settings name, by the place."""
    access = config.access
    return AuthSettings(
        passwords=_passwords(config, bundle, run_dir),
        tokens=_tokens(access.jwt, secrets) if access.jwt.keys else None,
        plugin=_plugin(access.plugin) if access.plugin.kind != "none" else None,
        certificate_prefix=access.certificate.user_prefix,
        anonymous={name: listener.anonymous for name, listener in config.listeners.all()},
        deadline_s=access.deadline.ms / 1000,
    )


def _passwords(config: Config, bundle: Bundle, run_dir: Path) -> PasswordSettings:
    password = config.access.password
    # Where none is in force the file that is configured stands for it: passwords are asked for, and none is right.
    in_force = str(passwords_path(run_dir, bundle)) if bundle.password_sha256 else password.file
    return PasswordSettings(
        file=in_force if password.file else "",
        sha256=bundle.password_sha256,
        threads=password.threads,
        queue_max=password.queue_max,
        remember_s=password.remember.ms / 1000,
        user_prefix=password.user_prefix,
    )


def _tokens(jwt: JwtAccess, secrets: Mapping[str, bytes]) -> TokenSettings:
    options = TokenOptions(
        algorithms=jwt.algorithms,
        issuer=jwt.issuer,
        audience=jwt.audience,
        user_claim=jwt.user_claim,
        groups_claim=jwt.groups_claim,
        grants_claim=jwt.grants,
        leeway_s=jwt.leeway.ms / 1000,
        user_prefix=jwt.user_prefix,
    )
    return TokenSettings(
        options,
        url="" if jwt.keys.is_local else jwt.keys,
        data=secrets.get(jwt.keys, b""),
        refresh_s=jwt.keys_refresh.ms / 1000,
        stale_max_s=jwt.keys_stale_max.ms / 1000,
    )


def _plugin(plugin: PluginAccess) -> PluginSettings:
    return PluginSettings(plugin.deadline.ms / 1000, plugin.queue_max, plugin.user_prefix)

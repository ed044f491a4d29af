"""Who may come in, and who may do what: the settings of docs/access.md.

Only declares and checks what can be checked without looking at a file; rules are `access.rules_file`, passwords `access.passwords`.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.secrets import SECRET_ALLOWED, Keys
from config.values import Duration

Texts = tuple[str, ...]

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256")
"""Those of access.jwks.FAMILIES, which stands above this floor; a test holds both together."""
PLUGINS_MAX = 16
PREFIX_BYTES_MAX = 64
_ALGORITHMS_ALLOWED = f'a list of at least one of {", ".join(ALGORITHMS)}, such as ["ES256"]'
_PLUGINS_ALLOWED = f'a list of at most {PLUGINS_MAX} names such as "package.module:Class" or "package.module.Class"'
_PREFIX_ALLOWED = f"at most {PREFIX_BYTES_MAX} bytes of text without control characters"
_PREFIX_WHY = "Put before every name that comes in this way, so that nobody of another way is the same user."


def _check_path(key: str, path: str) -> None:
    if path and not (path.startswith("/") and "\0" not in path):
        raise conflict(key, "an absolute path or nothing")


def _check_prefix(prefix: str) -> None:
    if len(prefix.encode(errors="replace")) > PREFIX_BYTES_MAX or not all(letter.isprintable() for letter in prefix):
        raise conflict("user_prefix", _PREFIX_ALLOWED)


class PasswordAccess(Section):
    file: str = setting(
        "",
        "Absolute path of the password file, one `user:hash` a line, as mosquitto_passwd writes it. Looked at twice "
        "a second; a file with a mistake changes nothing and raises an alarm. Empty: no password is right.",
        allowed="an absolute path or nothing",
        effect="at once",
    )
    threads: Whole = setting(
        1,
        "Threads of a gateway that check passwords. One argon2 entry of ours takes 23 ms of a core, and what logs in does not delay what "
        "publishes; more are worth it on machines with more cores.",
        unit="threads",
        ge=1,
        le=16,
        effect="at once",
    )
    queue_max: Whole = setting(
        1000,
        "Passwords that wait for them. Further ones are told to come later (0x89), and one address has at most a tenth of it.",
        unit="logins",
        ge=1,
        le=100_000,
        effect="at once",
    )
    remember: Duration = setting(
        Duration.parse("1h"),
        "How long a password that was right is remembered, as a keyed digest in memory, so that a client that comes back costs next to "
        "nothing. A changed entry is not remembered. 0: not at all.",
        ge=0,
        le=7 * 86_400_000,
        effect="at once",
    )
    user_prefix: str = setting("", _PREFIX_WHY, allowed=_PREFIX_ALLOWED, effect="at once")

    @model_validator(mode="after")
    def _texts(self) -> Self:
        _check_path("file", self.file)
        _check_prefix(self.user_prefix)
        return self


class JwtAccess(Section):
    keys: Keys = setting(
        Keys(""),
        "Where the keys are that sign tokens: a set of public keys (JWKS) at an https:// address or in a file, or a secret of 32 bytes and "
        "more for HS256. Empty: no password is taken for a token.",
        allowed=f'"https://address/of/jwks.json", {SECRET_ALLOWED}',
        effect="at once",
    )
    algorithms: Texts = setting(
        ("RS256", "ES256", "EdDSA"),
        "Algorithms that a token may be signed with. HS256 is not among them by default, as who checks such a token could make one.",
        unit="algorithms",
        allowed=_ALGORITHMS_ALLOWED,
        effect="at once",
    )
    issuer: str = setting("", "What `iss` of a token has to be. Empty: any.", effect="at once")
    audience: str = setting(
        "", "What `aud` of a token has to be or to have in it. Empty: a token that names one is for somebody else.", effect="at once"
    )
    user_claim: str = setting(
        "sub", "The claim that is the user's name.", pattern=r"^.{1,256}$", allowed="the name of a claim", effect="at once"
    )
    groups_claim: str = setting("groups", "The claim with his groups, a list of texts. Empty: tokens bring none.", effect="at once")
    grants: str = setting(
        "",
        'The claim with what he may do, such as `{"pub": ["meters/7/#"], "sub": ["news/#"]}`; with it only those who have grants or '
        "whom the rules let may do anything. Empty: no claim counts. EMQX calls it `acl`.",
        effect="at once",
    )
    leeway: Duration = setting(
        Duration.parse("30s"), "How much the clocks of signer and broker may differ.", ge=0, le=600_000, effect="at once"
    )
    keys_refresh: Duration = setting(
        Duration.parse("5m"), "How often a set of keys is fetched anew.", ge=10_000, le=86_400_000, effect="at once"
    )
    keys_stale_max: Duration = setting(
        Duration.parse("1h"),
        "How long the last set counts while none can be fetched; after that no token does.",
        ge=0,
        le=7 * 86_400_000,
        effect="at once",
    )
    user_prefix: str = setting("", _PREFIX_WHY, allowed=_PREFIX_ALLOWED, effect="at once")

    @model_validator(mode="after")
    def _texts(self) -> Self:
        if not self.algorithms or not set(self.algorithms) <= set(ALGORITHMS):
            raise conflict("algorithms", _ALGORITHMS_ALLOWED)
        if self.keys.startswith("https://") and "HS256" in self.algorithms:
            raise conflict("algorithms", "no HS256 while access.jwt.keys is an address, as what anybody may fetch is no secret")
        _check_prefix(self.user_prefix)
        return self


class CertificateAccess(Section):
    user_prefix: str = setting("", _PREFIX_WHY, allowed=_PREFIX_ALLOWED, effect="at once")

    @model_validator(mode="after")
    def _texts(self) -> Self:
        _check_prefix(self.user_prefix)
        return self


class PluginAccess(Section):
    kind: Literal["none", "holdfast", "amqtt"] = setting(
        "none",
        "What answers for those whom nobody else knows, in a process of its own. holdfast: classes of ours (docs/access.md). amqtt: "
        "plugins that were written for amqtt, as they are.",
    )
    plugins: Texts = setting((), "Which ones, in this order.", unit="plugins", allowed=_PLUGINS_ALLOWED, effect="at once")
    config_file: str = setting(
        "", "Absolute path of the file with their settings, TOML or YAML.", allowed="an absolute path or nothing", effect="at once"
    )
    deadline: Duration = setting(
        Duration.parse("2s"),
        "How long one answer may take; a late one is a no. Five in a row, and for 10 s all are a no at once.",
        ge=50,
        le=30_000,
        effect="at once",
    )
    decides: Flag = setting(
        False,
        "Whether it is also asked what somebody may do, where rules and grants say nothing. Each topic costs a question, so it is off "
        "by default.",
        effect="at once",
    )
    cache: Duration = setting(
        Duration.parse("900ms"),
        "How long such an answer counts. A right that was taken away lasts so long, and until what is on its way has come.",
        ge=0,
        le=1000,
        effect="at once",
    )
    queue_max: Whole = setting(
        1000, "Questions that wait for an answer; further ones are a no.", unit="questions", ge=1, le=100_000, effect="at once"
    )
    user_prefix: str = setting("", _PREFIX_WHY, allowed=_PREFIX_ALLOWED, effect="at once")

    @model_validator(mode="after")
    def _together(self) -> Self:
        _check_path("config_file", self.config_file)
        _check_prefix(self.user_prefix)
        if len(self.plugins) > PLUGINS_MAX or any(not name or not name.isprintable() for name in self.plugins):
            raise conflict("plugins", _PLUGINS_ALLOWED)
        if self.kind != "none" and not self.plugins:
            raise conflict("plugins", f'at least one while access.plugin.kind is "{self.kind}"')
        if self.decides and self.kind == "none":
            raise conflict("decides", 'false while access.plugin.kind is "none", as nobody would answer')
        return self


class Access(Section):
    rules: str = setting(
        "",
        "Absolute path of the file of rules (docs/access.md). Looked at twice a second; a file with a mistake changes nothing and raises "
        "an alarm, and at the start it keeps the broker from starting. Empty: whoever came in may do everything.",
        allowed="an absolute path or nothing",
        effect="at once",
    )
    deadline: Duration = setting(
        Duration.parse("5s"),
        "How long our part of letting somebody in may take; after that he is told that the server is unavailable (0x88).",
        ge=100,
        le=60_000,
        effect="at once",
    )
    adopt_anonymous: Flag = setting(
        False,
        "Give a session that the anonymous one made to the first named user who asks for it: for the day on which passwords come.",
        effect="at once",
    )
    takeovers_max: Whole = setting(
        5,
        "How often a client id may be taken over within 30 s before the newcomer has to wait: two clients with one id would throw each "
        "other out for ever. 0: never slowed.",
        unit="takeovers",
        ge=0,
        le=1000,
        effect="at once",
    )
    password: PasswordAccess = setting(PasswordAccess(), "Users by password or SCRAM.")
    jwt: JwtAccess = setting(JwtAccess(), "Users by a token, as their password.")
    certificate: CertificateAccess = setting(CertificateAccess(), "Users by the name in a client certificate, where a listener takes it.")
    plugin: PluginAccess = setting(PluginAccess(), "Users by what a plugin says.")

    @model_validator(mode="after")
    def _paths(self) -> Self:
        _check_path("rules", self.rules)
        return self

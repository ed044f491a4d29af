"""The reader in the configuration: tokens, TLS, bounds, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config.dump import dump_json, dump_toml
from config.load import ConfigError, from_json, load
from config.values import Size

TOKENS = "pipeline.tokens"
SHA = "0" * 63 + "f"


def _one(**changed: object) -> str:
    fields: dict[str, object] = {"name": "lake", "sha256": SHA, "filters": ["plant/#"], **changed}
    return f"{{{', '.join(f'{key} = {json.dumps(value)}' for key, value in fields.items() if value is not None)}}}"


def test_tokens_come_from_a_file_and_travel_as_they_are(tmp_path: Path) -> None:
    """What is written is read back, in a file and on the way to other processes."""
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f'[pipeline]\nbytes_per_s = "10MiB"\n[[pipeline.tokens]]\nname = "lake"\nsha256 = "{SHA}"\nfilters = ["plant/#", "$SYS/+"]\n'
        '[[pipeline.tokens]]\nname = "writer"\ntoken_file = "/run/t"\nfilters = ["#"]\nwrite = true\n'
    )
    config = load(file, environ={})
    assert [(each.name, each.sha256, each.token_file, each.filters, each.write) for each in config.pipeline.tokens] == [
        ("lake", SHA, "", ("plant/#", "$SYS/+"), False),
        ("writer", "", "/run/t", ("#",), True),
    ]
    assert config.pipeline.bytes_per_s == Size.parse("10MiB")
    file.write_text(dump_toml(config))
    assert load(file, environ={}) == config
    assert from_json(dump_json(config)) == config


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([_one(name="Lake")], 'names of 1 to 32 of a-z, 0-9, _ and -, and "Lake" is none.'),
        ([_one(name="a.b")], 'and "a.b" is none.'),
        ([_one(), _one()], 'it takes every name once, and "lake" is there twice.'),
        ([_one(sha256=None)], 'either sha256 or token_file in each token, and "lake" has none.'),
        ([_one(token_file="/t")], 'either sha256 or token_file in each token, and "lake" has both.'),
        ([_one(sha256="secret")], 'a sha256 of 64 digits of 0-9 and a-f, and that of "lake" is none.'),
        ([_one(sha256=None, token_file="t")], 'it takes absolute paths, and the token_file of "lake" is none.'),
        ([_one(filters=[])], 'at least one filter in each token, and "lake" has none.'),
        ([_one(filters=["a/#/b"])], 'it takes topic filters such as "alarms/#", and "a/#/b" is none.'),
        ([_one(filters=None)], "it takes a list of at most 100 tokens"),
        ([_one(write="yes")], "it takes a list of at most 100 tokens"),
        ([_one(name=f"t{n}") for n in range(101)], "it takes at most 100 tokens, and there are 101."),
    ],
)
def test_each_mistake_in_tokens_is_one_sentence(tokens: list[str], said: str) -> None:
    """The value, where it is from, and what is wrong with it."""
    with pytest.raises(ConfigError) as raised:
        load(sets=[f"{TOKENS}=[{', '.join(tokens)}]"], environ={})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{TOKENS} = [") and said in problem and problem.endswith("."), problem


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        (["pipeline.tls_cert=/c.pem"], "pipeline.tls_key"),
        (["pipeline.tls_key=/k.pem"], "pipeline.tls_cert"),
        (["pipeline.tls_cert=c.pem", "pipeline.tls_key=/k.pem"], "pipeline.tls_cert"),
        (["pipeline.reader=sometimes"], "pipeline.reader"),
        (["pipeline.max_scans=0"], "pipeline.max_scans"),
        (["pipeline.bytes_per_s=1KiB"], "pipeline.bytes_per_s"),
        (["pipeline.listen=7883"], "pipeline.listen"),
    ],
)
def test_each_mistake_beside_tokens_names_its_key(sets: list[str], key: str) -> None:
    """Half of TLS is none, and a path has to mean the same in every process."""
    with pytest.raises(ConfigError) as raised:
        load(sets=sets, environ={})
    (problem,) = raised.value.problems
    assert problem.startswith(f"{key} = "), problem

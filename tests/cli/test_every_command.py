"""All commands end alike: 0 for help, 2 for what makes no sense, and one sentence, never a traceback."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.house.test_commands import COMMANDS, leaves

LEAVES = [" ".join(path) for path in leaves(COMMANDS)]


@pytest.mark.parametrize("command", LEAVES)
def test_every_command_explains_itself_and_refuses_what_it_does_not_know(command: str) -> None:
    """Nothing is done in either case, whatever else would be wanted."""
    explained = CliRunner().invoke(app, [*command.split(), "--help"])
    assert (explained.exit_code, "Usage: " in explained.stdout) == (0, True)
    refused = CliRunner().invoke(app, [*command.split(), "--no-such-option"])
    assert (refused.exit_code, "--no-such-option" in refused.stderr) == (2, True)
    assert refused.stdout == "" and isinstance(refused.exception, SystemExit)

"""How a setting is declared in `config.schema`: default, range, unit and why, in one place.

`setting` keeps what pydantic has no word for beside the field, so that error sentences and docs/configuration.md say the
same as the check that is made.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

# Lax pydantic reads "yes" as True and "5" as 5; a configuration file means what it says.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]

CONFLICT = "conflict"

Effect = Literal["at once", "with the next generation", "at the next start", "never, fixed"]
"""When a change of a setting takes effect in a broker that runs and is told to read its configuration again."""


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def setting(
    default: object,
    why: str,
    *,
    unit: str = "",
    ge: int | None = None,
    le: int | None = None,
    pattern: str | None = None,
    allowed: str = "",
    effect: Effect = "at the next start",
) -> Any:
    """Declare one setting.

    `why` is what it means, and why the default is what it is. `allowed` words the range where it is not a plain one.
    `effect`: when a change of it takes effect; what is fixed cannot be changed once a store exists.
    """
    extra: dict[str, Any] = {"unit": unit, "allowed": allowed, "effect": effect}
    return Field(default=default, description=why, ge=ge, le=le, pattern=pattern, json_schema_extra=extra)


def conflict(key: str, allowed: str) -> PydanticCustomError:
    """Two settings that are allowed alone and not together; `key`, below its section, is the one to change."""
    return PydanticCustomError(CONFLICT, "{key} takes {allowed}", {"key": key, "allowed": allowed})

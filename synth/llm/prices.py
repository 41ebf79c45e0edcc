"""Prices of tokens, from a file that the user keeps."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from synth.llm.outcome import Usage
from synth.records import Record, SynthError

MILLION = 1_000_000
TEMPLATE = """# What a million tokens cost, per model. Prices change: check them before you trust a sum.
currency = "USD"

# [models."name of the model"]
# input = 1.00
# cached_input = 0.10      # left out: as input
# output = 4.00
"""


class Price(Record):
    """Of one model, in the file's currency for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)

    def of(self, usage: Usage) -> float:
        """What a usage costs; unsure tokens count as the dearer of input and output."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = max(0, usage.input - usage.cached)
        worst = max(self.input, self.output)
        total = fresh * self.input + usage.cached * cached + usage.output * self.output + usage.unsure * worst
        return total / MILLION

    def at_most(self, input_tokens: int, output_tokens: int) -> float:
        """Bound of a request that was not sent yet."""
        return (input_tokens * max(self.input, self.cached_input or 0) + output_tokens * self.output) / MILLION


FREE = Price(input=0, output=0)


class Prices(Record):
    """All that are known."""

    currency: str = "USD"
    models: Mapping[str, Price] = Field(default_factory=dict)

    def of(self, model: str) -> Price | None:
        """The price of a model; `None` if nobody said."""
        return self.models.get(model)


def read_prices(path: Path | None) -> Prices:
    """Prices of a TOML file; none of a missing one.

    Raises:
        SynthError: the file cannot be read or holds something else.
    """
    if path is None:
        return Prices()
    try:
        return Prices.model_validate(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Prices()
    except OSError as error:
        raise SynthError(f"cannot read `{path}`: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise SynthError(
            f"`{path}` holds no prices: {reason}", help_text="see prompts/README.md for its form"
        ) from error

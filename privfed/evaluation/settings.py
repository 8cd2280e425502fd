"""`EvaluationSettings`: whether quality is measured exactly, or by one more noisy sum of the run's ledger."""

from itertools import product
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

_MOST_CANDIDATES = 64


class EvaluationSettings(BaseModel):
    """How the quality of a run is measured.

    Attributes:
        private: measure after the last round by a noisy sum of clipped vectors of metrics, which the ledger counts;
            nothing exact is then computed, shown or written. Otherwise quality is exact and outside the ledger.
        mu: what the noisy sum may cost: two data sets that differ in one person are as hard to tell apart by it as two
            unit Gaussians at this distance. With 6,040 people 0.05 measures the main metric to about 0.004.
        grid: settings of the method to choose among, name -> values: all combinations are made of the same release,
            and a noisy sum of their metrics on the validation part says which one is kept. Empty chooses nothing.
        selection_mu: what that sum may cost, in the same unit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    private: bool = Field(default=False, description="measure by a noisy sum that the ledger counts, and nothing else")
    mu: float = Field(0.05, gt=1e-3, le=10, description="what that sum may cost: Gaussian distance of one person")
    grid: dict[str, tuple[JsonValue, ...]] = Field(
        default_factory=dict, description="settings of the method to choose among by a noisy sum, name -> values"
    )
    selection_mu: float = Field(0.05, gt=1e-3, le=10, description="what the choice may cost, as mu")

    @model_validator(mode="after")
    def _grid_is_a_choice(self) -> Self:
        if self.grid and not self.private:
            raise ValueError("a grid is chosen from by a noisy sum: set evaluation.private = true, or leave grid out")
        if self.grid and not 2 <= len(self.candidates) <= _MOST_CANDIDATES:
            raise ValueError(
                f"evaluation.grid has {len(self.candidates)} combinations: give 2 to {_MOST_CANDIDATES} to choose among"
            )
        return self

    @property
    def candidates(self) -> list[dict[str, JsonValue]]:
        """All combinations of the grid, in its order; none where there is no grid."""
        return (
            [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())] if self.grid else []
        )

    @model_serializer(mode="wrap")
    def _nothing_of_exact_metrics(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What costs nothing has no price, so that runs with exact metrics do not differ by it.
        fields: dict[str, Any] = write(self)
        if not self.private:
            return {"private": False}
        return fields if self.grid else {key: fields[key] for key in ("private", "mu")}

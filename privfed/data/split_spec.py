"""`SplitSpec`: how held-out items are chosen, as people write it; `privfed.data.splits` carries it out."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

PARTS = ("train", "valid", "test")


class SplitSpec(BaseModel):
    """Specification of a split.

    Attributes:
        kind: "leave_one_out" (newest is test, second newest validation), "user_time" (the newest share of
            each user's rows is test, the share before it validation), "ratio" (random, per user) or
            "published" (the `split` column of the data set).
        target: The behaviour to recommend (view, cart, buy, ...); null where the data set has one or none.
        ties: Which of two rows of a user with equal time is newer: "later_row_is_newer" in the file, or
            "earlier_row_is_newer" as in the released code of PFedRec and GPFedRec.
        valid_fraction: Share of each user's rows for validation ("ratio", rounded half up, and "user_time"); with
            `valid_from_train`, of each user's published training rows, rounded half up.
        test_fraction: Share of each user's rows for test ("ratio", rounded half up, and "user_time").
        valid_from_train: Of a published split without a validation part, take one from the training part at
            random, so that settings can be chosen without a look at the test part ("published" only).
        seed: Seed of the random choice ("ratio", `valid_from_train`, and a share of donors).
        arrivals: Refreshes of a year over which training items arrive, each of which brings as many, by time; null: all
            are there from the first on.
        donors: People who open their history to the server and so leave the run (`privfed.data.donors`): a share of
            all, drawn from the seed alone, or their ids; null for nobody.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    kind: Literal["leave_one_out", "user_time", "ratio", "published"] = "leave_one_out"
    target: str | None = None
    ties: Literal["later_row_is_newer", "earlier_row_is_newer"] = "later_row_is_newer"
    valid_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    valid_from_train: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    donors: Annotated[float, Field(gt=0, lt=1)] | tuple[str, ...] | None = None
    arrivals: Annotated[int, Field(ge=2)] | None = None

    @model_serializer(mode="wrap")
    def _without_nobody(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """Without donors the fields are those of a split of everybody, and so is what is derived from them."""
        fields: dict[str, JsonValue] = handler(self)
        for name in ("donors", "arrivals"):
            if getattr(self, name) is None:
                fields.pop(name, None)
        return fields

    @model_validator(mode="after")
    def _leave_some_for_training(self) -> "SplitSpec":
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError(
                f"valid_fraction + test_fraction is {self.valid_fraction + self.test_fraction:g}, which "
                "leaves nothing for training: make the sum smaller than 1"
            )
        if self.valid_from_train and self.kind != "published":
            raise ValueError(
                "valid_from_train takes a validation part out of a published training part, and kind is "
                f'"{self.kind}": choose kind="published", or leave valid_from_train out'
            )
        return self

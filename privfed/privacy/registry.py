"""Families of models that a word tells apart: what can be registered, looked up and parsed.

A family is a base class. A concrete class joins it by `register`, under the value of its `kind` field; from then on the
family's fields in other models (a plan's mechanism, a mechanism's padding) accept it, whenever these were defined.
"""

import functools
import operator
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from privfed.privacy.errors import PlanError

Member = TypeVar("Member", bound="Family")


class Family(BaseModel):
    """Base of a family; every family declares a `members` dictionary of its own."""

    members: ClassVar[dict[str, type[Any]]]
    # Built at the first use after a registration, because building takes milliseconds.
    union: ClassVar[TypeAdapter[Any] | None] = None

    @classmethod
    def register(cls, member: type[Member]) -> type[Member]:
        """Add a class to the family; usable as a decorator.

        Raises:
            PlanError: the kind is taken.
        """
        kind = str(member.model_fields["kind"].default)
        if cls.members.setdefault(kind, member) is not member:
            raise PlanError(f"kind {kind!r} is registered already by {cls.members[kind].__name__}: choose another word")
        cls.union = None
        return member

    @classmethod
    def remove(cls, kind: str) -> None:
        """Take a kind out of the family again, which only tests need."""
        del cls.members[kind]
        cls.union = None

    @classmethod
    def alternatives(cls) -> tuple[type[BaseModel], ...]:
        """The models among which a field of the family chooses; a registered class is the only one of its own."""
        return (cls,) if "kind" in cls.model_fields else tuple(cls.members.values())

    @classmethod
    def parse(cls, value: object) -> Self:
        """The member that a dictionary with a `kind` describes; a member is returned as it is.

        Raises:
            ValidationError: as for a discriminated union of all members.
        """
        if cls.union is None:
            members: Any = functools.reduce(operator.or_, cls.members.values())
            cls.union = TypeAdapter(Annotated[members, Field(discriminator="kind")])
        parsed: Self = value if isinstance(value, cls) else cls.union.validate_python(value)
        return parsed

"""Which kinds of padding there are, and the field type by which a mechanism holds one of them."""

from typing import Annotated

from pydantic import SerializeAsAny, WrapValidator

from privfed.privacy.padding.base import Padding
from privfed.privacy.padding.fake_items import FakeItems
from privfed.privacy.padding.full_support import FullSupport
from privfed.privacy.padding.no_padding import NoPadding
from privfed.privacy.padding.randomised_response import RandomisedResponse

Padding.register(FullSupport)
Padding.register(NoPadding)
Padding.register(FakeItems)
Padding.register(RandomisedResponse)

AnyPadding = Annotated[SerializeAsAny[Padding], WrapValidator(lambda value, _: Padding.parse(value))]
"""A registered padding, told apart by its `kind`."""

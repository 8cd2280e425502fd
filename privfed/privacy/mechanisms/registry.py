"""Which mechanisms there are, and the field type by which a plan holds one of them.

`Mechanism.register` adds one at run time; plans parse it from then on.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import SerializeAsAny, WrapValidator

from privfed.privacy.errors import PlanError, nearest
from privfed.privacy.mechanisms.base import Mechanism
from privfed.privacy.mechanisms.central_gaussian import CentralGaussian
from privfed.privacy.mechanisms.clip_only import ClipOnly
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.privacy.mechanisms.interaction_dpsgd import InteractionDPSGD
from privfed.privacy.mechanisms.local_gaussian import LocalGaussian
from privfed.privacy.mechanisms.local_laplace import LocalLaplace
from privfed.privacy.mechanisms.secure_sum import SecureSum
from privfed.privacy.mechanisms.shared_sum import SharedSum
from privfed.privacy.mechanisms.unclipped_noise import UnclippedNoise
from privfed.privacy.mechanisms.unprotected import Unprotected
from privfed.privacy.mechanisms.unsized import Unsized

# In the order in which tables and messages list them: from no protection to the most trust in others' arithmetic.
Mechanism.register(Unprotected)
Mechanism.register(ClipOnly)
Mechanism.register(UnclippedNoise)
Mechanism.register(LocalLaplace)
Mechanism.register(LocalGaussian)
Mechanism.register(InteractionDPSGD)
Mechanism.register(CentralGaussian)
Mechanism.register(SecureSum)
Mechanism.register(SharedSum)
Mechanism.register(DistributedGaussian)


def read_mechanism(value: object) -> Mechanism:
    """The mechanism that settings describe, with what they leave open.

    Raises:
        ValidationError: a setting is missing, unknown or not allowed.
        PlanError: a target that cannot be reached.
    """
    if isinstance(value, Mapping) and Unsized.leaves_open(value):
        return Unsized.from_settings(value)
    return Mechanism.parse(value)


def protects(kind: object) -> bool:
    """Whether the mechanism of this kind does anything; one that is not installed is taken to."""
    known = Mechanism.members.get(str(kind))
    return known is None or known.protects


AnyMechanism = Annotated[SerializeAsAny[Mechanism], WrapValidator(lambda value, _: read_mechanism(value))]
"""A registered mechanism, told apart by its `kind`."""


def preset(name: str) -> dict[str, Any]:
    """Kind and settings of a preset.

    Raises:
        PlanError: no mechanism has this name.
    """
    presets = {member.preset: member for member in Mechanism.members.values()}
    if name not in presets:
        raise PlanError(f"privacy plan {name!r} is not known{nearest(name, presets)}")
    return {"kind": presets[name].model_fields["kind"].default, **presets[name].preset_fields}


def examples() -> dict[str, Mechanism]:
    """One mechanism of every kind at least, by the words that name it on the command line."""
    return {words: example for member in Mechanism.members.values() for words, example in member.examples().items()}

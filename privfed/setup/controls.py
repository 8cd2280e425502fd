"""Controls: runs that a method has to beat before its quality says anything about federated learning.

* `no-communication`: every device is a federation of its own. It runs the method's server for itself, from the same
  public start and with nobody else in the cohort, so that it learns from its own history alone and nothing is sent. A
  method that is no better than this has gained nothing from others. A server that leaves its model as it is for so few
  clients (GPFedRec's `min_neighbours`) does so here, too.
* `shuffled`: the items of every user are renamed at random, for this user alone (`privfed.setup.shuffled`), so that no
  history says anything about what is held out. What is better than chance then is what split and protocol give away,
  such as negatives that are never held-out items.
* `untrained`: the public start before any round, and private parameters as they are then.

Two more need no run of their own: popularity stands beside every run, and `protocol.negatives` says whether held-out
items may be drawn as negatives.
"""

from collections.abc import Mapping
from typing import Literal

Control = Literal["no-communication", "shuffled", "untrained"]
CONTROLS: Mapping[Control, str] = {
    "no-communication": "devices that train alone",
    "shuffled": "training on shuffled histories",
    "untrained": "the untrained model",
}
"""Every control, and what it is in a few words."""

SILENT: frozenset[Control] = frozenset({"no-communication", "untrained"})
"""Controls in which nothing is sent."""

NOTHING_SENT = "this control sends nothing, so there is no release that a guarantee could speak of"
"""Why a silent control has no finite epsilon, although nobody learns anything from it."""


def control_sentence(control: Control) -> str:
    """What was run instead of the method, in a sentence."""
    return {
        "no-communication": "Control: every device trains alone from the public start; nothing is sent, and no device "
        "learns from another.",
        "shuffled": "Control: the items of every user are renamed at random, for this user alone, so whatever is "
        "better than chance is given away by the split and the protocol.",
        "untrained": "Control: nothing is trained; scores are those of the model before the first round.",
    }[control]

"""Active servers: what a server that lies sends, as pure functions of what an honest one would have sent.

A craft replaces the model that clients train on; a broken model makes a client's training fail, so that it sends
nothing. What comes back is read by the attacks of `attacks.membership` and `attacks.sums`.
"""

from attacks.active.breaking import broken
from attacks.active.crafts import CRAFTS, HONEST, Craft
from attacks.active.lit_rows import lit

__all__ = ["CRAFTS", "HONEST", "Craft", "broken", "lit"]

"""What goes wrong with subspaces, and with handing them out."""


class SubspaceError(ValueError):
    """A subspace, a low-rank shape or a kept part of a table does not fit the table or the values it is given."""


class CapacityError(ValueError):
    """Capacities, budgets or tiers do not fit the users or the tables they are for."""

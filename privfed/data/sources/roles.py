"""Which column plays which part: user, item and, optionally, time, order, rating, behaviour and split."""

from collections.abc import Mapping, Sequence

from privfed.data.errors import DataError

ROLES = ("user", "item", "timestamp", "order", "rating", "behaviour", "split")


def resolve(
    present: Sequence[str], chosen: Mapping[str, str] | None, usual: Mapping[str, str], source: str
) -> dict[str, str]:
    """Role -> column.

    Args:
        present: Columns of the file.
        chosen: Role -> column named by the user, or None.
        usual: Role -> column to take for a role that the user did not name, where the file has it.
        source: The file, for messages.

    Raises:
        DataError: A role or a column is unknown, or no column plays user or item.
    """
    chosen = chosen or {}
    if unknown := [role for role in chosen if role not in ROLES]:
        raise DataError(f"columns names {unknown[0]!r}, which is not a role: choose among {', '.join(ROLES)}")
    found = {role: column for role, column in usual.items() if role not in chosen and column in present} | dict(chosen)
    wanted = {role: usual.get(role, role) for role in ("user", "item")} | found
    for role, column in wanted.items():
        if column not in present:
            raise DataError(
                f"{source} has no column {column!r} for the {role} (it has {', '.join(present)}): "
                f'say which one it is, for example columns={{"{role}": "{present[0]}"}}'
            )
    return found

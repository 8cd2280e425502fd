"""Text from a peer as one line that is safe in a log, at a terminal and in a page."""

LONGEST = 200
"""Characters of a peer's text that a log line holds unless it says otherwise."""

_CUT = "..."


def printable(text: str, longest: int = LONGEST) -> str:
    r"""Text of a peer as at most `longest` printable ASCII characters.

    Control characters, line breaks, terminal escapes, marks that reverse the direction of writing, and letters that
    look like others become backslash escapes, and a backslash becomes two: no text forges a line or reads as another.

    Args:
        text: of whatever length; what is behind the first `longest` characters is not looked at.
        longest: of the result, at least 3; a text that was cut ends in three dots.
    """
    escaped = text[:longest].encode("unicode_escape").decode("ascii")
    if len(text) <= longest and len(escaped) <= longest:
        return escaped
    return escaped[: longest - len(_CUT)] + _CUT

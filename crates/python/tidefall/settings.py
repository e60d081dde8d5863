"""Which settings a script of SQL changes: a client says them again with each question, as a server forgets them."""

import re

# A text or name in quotes, where no comment begins and no statement ends: a quote within it is doubled, or escaped.
QUOTED = re.compile(r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|(?<!\w)\$(\w*)\$.*?\$\1\$""", re.DOTALL)
PLAIN = re.compile(r"[^-/;'\"`$eE]+")
COMMENT = re.compile(r"--[^\n]*")
COMMENT_EDGE = re.compile(r"/\*|\*/")
# A statement that changes a setting and nothing else, and the name of the setting.
SETTING = re.compile(r"\s*(?P<verb>SET|RESET)\s+(?P<name>TIME\s*ZONE\b|[^\s=]+).*", re.IGNORECASE | re.DOTALL)
SETTING_SOMEWHERE = re.compile(r"\b(SET|RESET)\b", re.IGNORECASE)
TIME_ZONE = "datafusion.execution.time_zone"


def statements_of(query: str) -> list[str]:
    """The statements of a script, without comments."""
    statements, at = [""], 0
    while at < len(query):
        if found := QUOTED.match(query, at) or PLAIN.match(query, at):
            statements[-1] += found[0]
            at = found.end()
        elif found := COMMENT.match(query, at):
            at = found.end()
        elif query.startswith("/*", at):
            at = end_of_comment(query, at)
            statements[-1] += " "
        elif query[at] == ";":
            statements.append("")
            at += 1
        else:
            statements[-1] += query[at]
            at += 1
    return [statement.strip() for statement in statements if statement.strip()]


def end_of_comment(query: str, start: int) -> int:
    """Where a comment ends that may have others in it."""
    depth = 0
    for edge in COMMENT_EDGE.finditer(query, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(query)


def settings_of(query: str) -> list[tuple[str, str | None]]:
    """The names of the settings that statements change, if all of them do so, and what sets them; None takes back."""
    # Most queries are none, and long ones need not be taken apart.
    if not SETTING_SOMEWHERE.search(query):
        return []
    statements = statements_of(query)
    found = [SETTING.fullmatch(statement) for statement in statements]
    if not all(found):
        return []
    names = [one["name"].lower() for one in found]
    names = [TIME_ZONE if re.fullmatch(r"time\s*zone", name) else name for name in names]
    return [(name, None if one["verb"].lower() == "reset" else f"{statement}; ") for name, one, statement in zip(names, found, statements)]

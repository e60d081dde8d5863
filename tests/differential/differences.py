"""Questions that are not compared, each with the reason."""

# DuckDB refuses these: a pattern of its error, and why.
NOT_ASKED = []

# Tidefall refuses these: a pattern of its error, and why it is meant or cannot be otherwise yet.
INTENDED = [
    (r"one of these times is not there or is there twice", "AT TIME ZONE of a time that clocks skip or show twice: DuckDB picks one"),
]

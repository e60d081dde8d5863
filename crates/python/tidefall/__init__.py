"""Tidefall: a database for sensor readings, in this process or behind a server.

>>> import tidefall
>>> db = tidefall.open("weather")                 # a directory; created if it is missing
>>> db.write("plant", frame, time="time", tags=["sensor"])
>>> plant = db.table("plant")
>>> plant.rows(["s001", "s002"], "2024-03-01", "2024-03-02").to_pandas()
>>> plant.resample("1h", "mean").to_polars()
>>> db.sql("SELECT sensor, max(value) FROM plant GROUP BY sensor").to_pandas()
"""

from ._tidefall import (
    ClosedError,
    ConflictError,
    CorruptError,
    Error,
    FullError,
    InvalidError,
    IoError,
    LimitError,
    LockedError,
    NotFoundError,
    UnsupportedError,
    __version__,
)
from .answers import Columns, Frame, Rows, Values, Written
from .database import Database, Table, connect, open
from .records import Records

__all__ = [
    "ClosedError",
    "Columns",
    "ConflictError",
    "CorruptError",
    "Database",
    "Error",
    "Frame",
    "FullError",
    "InvalidError",
    "IoError",
    "LimitError",
    "LockedError",
    "NotFoundError",
    "Records",
    "Rows",
    "Table",
    "UnsupportedError",
    "Values",
    "Written",
    "__version__",
    "connect",
    "open",
]

"""Tables of records, which are asked for by boxes over their dimensions."""

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow

from . import _tidefall
from .answers import Rows, Written
from .data import to_arrow

if TYPE_CHECKING:
    from .database import Database

Side = tuple[Any, Any] | list[Any] | Any
"""What a column must be: between two values, both included, of which None is no bound; one of a list of values; or a value."""


class Records:
    """A table of records. Boxes are keywords, a column each: `trips.range(latitude=(40.7, 40.8), passengers=[1, 2])`."""

    def __init__(self, database: "Database", name: str):
        self._database, self.name = database, name

    def __repr__(self) -> str:
        return f"<tidefall.Records {self.name}>"

    def write(self, data: Any, *, index: Sequence[str] | None = None) -> Written:
        """Writes records; returns how many, when they are on disk. `data` is what `Database.write` takes. Each needs a value for every dimension;
        equal ones are all kept. Many are written in pieces: of those before one that fails all stay.

        With `index`, the names of the dimensions, a table that is missing is made, with the columns and types of `data`."""
        arrow = to_arrow(data)
        if self.name not in self._database.tables():
            if index is None:
                raise _tidefall.NotFoundError(f"there is no table {self.name!r}; index=[...] with the names of its dimensions makes one of records")
            self._create(arrow.schema, [index] if isinstance(index, str) else list(index))
        return Written(*self._database._core.write(self.name, arrow, None, [], "count"))

    def _create(self, schema: pyarrow.Schema, index: list[str]) -> None:
        """Makes the table that data of a schema fits into."""
        columns = ", ".join(f"{_quoted(field.name)} {_sql_type(field)}" for field in schema)
        dimensions = ", ".join(map(_quoted, index)).replace("'", "''")
        self._database.sql(
            f"CREATE TABLE IF NOT EXISTS {_quoted(self.name)} ({columns}) WITH (model = 'records', index = '({dimensions})')"
        ).to_dict()

    def range(self, columns: str | Sequence[str] | None = None, *, limit: int | None = None, **box: Side) -> Rows:
        """The records in a box, in no order, with these columns or all."""
        names = [columns] if isinstance(columns, str) else columns
        shown = "*" if names is None else ", ".join(map(_quoted, names))
        return self._ask(shown, box, "" if limit is None else f" LIMIT {int(limit)}")

    def count(self, **box: Side) -> int:
        """How many records there are in a box."""
        return self._ask("count(*)", box, "").to_arrow().column(0)[0].as_py()

    def nearest(
        self, count: int, point: Mapping[str, Any], columns: str | Sequence[str] | None = None, **box: Side
    ) -> Rows:
        """The `count` records in a box that are nearest to a point, the nearest first, with these columns or all, and their distance behind them.
        `point` has a value for each dimension that counts, or a pair of it and the length that counts as one (a number; for times a timedelta):
        the distance is the root of the sum of squares. A record that has a NaN there has no distance, and comes last."""
        axes, values = [], []
        for name, place in point.items():
            at, length = place if isinstance(place, tuple) else (place, None)
            if isinstance(length, datetime.timedelta):
                length = f"{int(length / datetime.timedelta(microseconds=1))}us"
            values.extend([at, length])
            axes.append(f"{_quoted(name)} => (${len(values) - 1}, ${len(values)})")
        names = [columns] if isinstance(columns, str) else columns
        table = "'" + self.name.replace("'", "''") + "'"
        relation = f"knn({', '.join([table, *axes])})"
        conditions, more = _conditions(box, len(values))
        # The distance is the last column, whatever its name is.
        distance = self._database.sql(f"SELECT * FROM {relation} LIMIT 0", values).to_arrow().column_names[-1]
        shown = "*" if names is None else ", ".join(map(_quoted, [*names, distance]))
        return self._database.sql(
            f"SELECT {shown} FROM {relation}{conditions} ORDER BY {_quoted(distance)} LIMIT {int(count)}", values + more
        )

    def _ask(self, shown: str, box: dict[str, Side], behind: str) -> Rows:
        where, values = _conditions(box, 0)
        return self._database.sql(f"SELECT {shown} FROM {_quoted(self.name)}{where}{behind}", values)


def _conditions(box: dict[str, Side], count: int) -> tuple[str, list[Any]]:
    """`WHERE` and a box, whose values are parameters behind so many others, and these."""
    conditions, values = [], []
    for name, side in box.items():
        condition, more = _condition(_quoted(name), side, count + len(values))
        conditions.append(condition)
        values.extend(more)
    return (f" WHERE {' AND '.join(conditions)}" if conditions else ""), values


def _condition(column: str, side: Side, count: int) -> tuple[str, list[Any]]:
    """A condition whose values are parameters behind so many others, and these."""
    if isinstance(side, list):
        places = ", ".join(f"${count + at + 1}" for at in range(len(side)))
        return (f"{column} IN ({places})" if side else "false"), side
    if not isinstance(side, tuple):
        return f"{column} = ${count + 1}", [side]
    if len(side) != 2:
        raise _tidefall.InvalidError(f"{column}: a range has two ends, not {len(side)}; None is no bound")
    parts, values = [], []
    for op, end in zip((">=", "<="), side):
        if end is not None:
            values.append(end)
            parts.append(f"{column} {op} ${count + len(values)}")
    return " AND ".join(parts) or "true", values


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_type(field: pyarrow.Field) -> str:
    """The type of a column that holds what one of Arrow's has."""
    ty = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
    is_of = pyarrow.types
    known = [
        (is_of.is_timestamp(ty) or is_of.is_date(ty), "TIMESTAMP"),
        (is_of.is_boolean(ty), "BOOLEAN"),
        (is_of.is_string(ty) or is_of.is_large_string(ty) or is_of.is_string_view(ty), "TEXT"),
        (is_of.is_int8(ty), "TINYINT"), (is_of.is_int16(ty), "SMALLINT"), (is_of.is_int32(ty), "INTEGER"), (is_of.is_int64(ty), "BIGINT"),
        (is_of.is_uint8(ty), "TINYINT UNSIGNED"), (is_of.is_uint16(ty), "SMALLINT UNSIGNED"),
        (is_of.is_uint32(ty), "INTEGER UNSIGNED"), (is_of.is_uint64(ty), "BIGINT UNSIGNED"),
        (is_of.is_float16(ty) or is_of.is_float32(ty), "REAL"),
        (is_of.is_float64(ty) or is_of.is_decimal(ty) or is_of.is_null(ty), "DOUBLE"),
    ]
    for matches, name in known:
        if matches:
            return name
    raise _tidefall.InvalidError(f"{field.name}: no column holds values of the type {ty}")

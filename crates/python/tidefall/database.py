"""Databases and their tables."""

import datetime
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from . import _tidefall, remote
from .answers import Columns, Frame, Rows, Values

Time = str | int | numpy.integer | datetime.datetime | datetime.date | numpy.datetime64 | pyarrow.TimestampScalar | None
"""A time: text as SQL reads it, a datetime of any kind (without a zone it is UTC), or nanoseconds since 1970. It lies
between 1677-09-21 and 2262-04-11. None leaves a side open."""

Width = str | datetime.timedelta | numpy.timedelta64
"""How wide a bin is: text such as "15m", "1h" or "1d", or a timedelta of any kind."""

Bounds = tuple[float | None, float | None]
"""Two numbers; None for no bound."""

# What a piece of `Table.frames` takes, if nobody says how many rows it shall have.
FRAME_BYTES = 16 << 20

Sensors = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
"""Which sensors: all (None), the values of the only tag, or for each of some tags its values."""


def open(path: str | os.PathLike[str], *, read_only: bool = False, memory_mib: int | None = None) -> "Database":
    """Opens the database in the directory `path`, and creates it if it is missing.

    One process at a time may write; any number may open it with `read_only=True` meanwhile, which shows
    the moment of opening. `memory_mib` bounds what the database takes for readings, merges and queries.
    A process that is forked off must not use it, and gets a `ClosedError`.
    """
    folder = os.fsdecode(path)
    if not folder:
        raise _tidefall.InvalidError("the path of the database is empty")
    return Database(_tidefall.Database(folder, read_only, memory_mib))


def connect(url: str) -> "Database":
    """Connects to a server, `tidefall serve`, at an address such as "http://127.0.0.1:8527"; the objects are the same as
    those of a database in this process."""
    return Database(remote.Database(url))


class Database:
    """An open database. Closes at the end of a `with` block, or by `close`."""

    def __init__(self, core: "_tidefall.Database | remote.Database"):
        self._core = core

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return f"<tidefall.Database: {', '.join(self.tables()) or 'no tables'}>"
        except _tidefall.Error as error:
            return f"<tidefall.Database: {error}>"

    def close(self) -> None:
        """Makes everything durable and closes the database."""
        self._core.close()

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._core.tables()

    def table(self, name: str) -> "Table":
        """A table that exists."""
        self._core.schema(name)
        return Table(self, name)

    def sql(self, query: str) -> Rows:
        """Runs SQL, and returns when it has an answer's first rows: `INSERT` and the like are done then.

        The rest of the answer is computed while it is read, and can be larger than memory. What a `SET` of its own
        says holds for all later calls.
        """
        return Rows(self._core.sql(query))

    def write(self, table: str, data: Any, *, time: str | None = None, tags: str | Sequence[str] = ()) -> int:
        """Writes rows, and creates table and columns that are missing; returns how many rows.

        `data` is a pandas or polars frame, anything of Arrow, or a dictionary of columns; the levels of the index of
        a pandas frame are columns, too. `time` names the time column (when absent the one called "time" if it is of
        a time type, else the first timestamp, else the first date), `tags` those that name the sensor; all others
        are fields. Returns when the rows are on disk. A row with the time and tags of an earlier one replaces it,
        field by field. Many rows are written in pieces, one after the other: when one of them fails, the earlier
        ones stay written.
        """
        return self._core.write(table, _to_arrow(data), time, [tags] if isinstance(tags, str) else list(tags))

    def write_wide(self, table: str, data: Any, *, time: str | None = None, tag: str = "sensor", field: str = "value") -> int:
        """Writes a wide frame, in which every column but that of time is a sensor; the fastest way in.

        The name of a column becomes the value of `tag`, its values those of `field`.
        """
        return self._core.write_wide(table, _to_arrow(data), time, (tag, field))

    def flush(self) -> None:
        """Writes what is in memory to objects."""
        self._core.flush()

    def cascade(self, table: str | None = None, *, to: str = "age") -> int:
        """Lets readings fall, as far as their age says, or all to "short" or "long" columns; returns how many fell."""
        return self._core.cascade(table, to)


class Table:
    """A table, and the ways to read it without SQL. Times are from `start` on and before `end`."""

    def __init__(self, database: Database, name: str):
        self._database, self._core, self.name = database, database._core, name

    def __repr__(self) -> str:
        try:
            time, tags, fields = self._core.schema(self.name)
        except _tidefall.Error as error:
            return f"<tidefall.Table {self.name}: {error}>"
        columns = [time, *(f"{tag} (tag)" for tag in tags), *(f"{name} {type_}" for name, type_ in fields)]
        return f"<tidefall.Table {self.name}: {', '.join(columns)}>"

    @property
    def tags(self) -> list[str]:
        """The tags that name a sensor."""
        return self._core.schema(self.name)[1]

    @property
    def fields(self) -> dict[str, str]:
        """The fields and their SQL types."""
        return dict(self._core.schema(self.name)[2])

    def sensors(self, sensors: Sensors = None) -> dict[str, list[str | None]]:
        """The tags of the sensors, tag by tag, in the order in which they are read."""
        return dict(self._core.sensors(self.name, self._chosen(sensors)))

    def write(self, data: Any, *, time: str | None = None) -> int:
        """Writes rows with the tags that the table has; see `Database.write`."""
        return self._database.write(self.name, data, time=time, tags=self.tags)

    def rows(
        self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None,
        between: Bounds | None = None, outside: Bounds | None = None,
    ) -> Frame:
        """Sensors side by side: a row for each time at which one of them has a reading, a column for each sensor.

        `between` keeps the values from its first up to its second number alone, `outside` those up to the first and
        from the second; both include their numbers. None stands for no bound.
        """
        if between is not None and outside is not None:
            raise _tidefall.InvalidError("say either between or outside")
        keep = (True, *_to_floats(between)) if between is not None else (False, *_to_floats(outside)) if outside is not None else None
        tags, time, values, missing = self._core.frame(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)), keep)
        return Frame(tags, numpy.asarray(time), numpy.asarray(values), missing)

    def frames(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None, rows: int | None = None) -> Iterator[Frame]:
        """As `rows`, in pieces that follow each other in time, for what is larger than memory.

        A piece has about `rows` rows, or 16 MiB of values. Every piece shows the moment at which it is read.
        """
        chosen = self._chosen(sensors)
        found = self._core.extent(self.name, chosen, (to_ns(start), to_ns(end)))
        if found is None:
            return
        first, last, rows_max, sensor_count = found
        if rows is None:
            rows = max(FRAME_BYTES // (8 * sensor_count), 1)
        elif rows < 1:
            raise _tidefall.InvalidError("a piece must have at least one row")
        width = max(-(-(last - first + 1) * rows // max(rows_max, 1)), 1)
        for begin in range(first, last + 1, width):
            piece = (begin, min(begin + width, last + 1))
            tags, time, values, missing = self._core.frame(self.name, chosen, field, piece, None)
            if len(time):
                yield Frame(tags, numpy.asarray(time), numpy.asarray(values), missing)

    def columns(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Columns:
        """Every sensor by itself: its times and its values."""
        tags, series = self._core.series(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)))
        return Columns(tags, [(numpy.asarray(time), numpy.asarray(values)[0], missing) for time, values, missing in series])

    def at(self, time: Time, sensors: Sensors = None, *, field: str | None = None) -> Values:
        """The value of every sensor at exactly this time; sensors without one are left out."""
        tags, times, values = self._core.at(self.name, self._chosen(sensors), field, _moment(time))
        return Values(tags, numpy.asarray(times), numpy.asarray(values))

    def latest(self, sensors: Sensors = None, *, field: str | None = None) -> Values:
        """The latest value of every sensor."""
        tags, times, values = self._core.latest(self.name, self._chosen(sensors), field)
        return Values(tags, numpy.asarray(times), numpy.asarray(values))

    def lowest(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Values:
        """The least value of every sensor and its time, the earliest if there are several; NaN is passed over."""
        return self._extremes(sensors, start, end, field, is_lowest=True)

    def highest(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Values:
        """The greatest value of every sensor and its time, the earliest if there are several; NaN is passed over."""
        return self._extremes(sensors, start, end, field, is_lowest=False)

    def _extremes(self, sensors: Sensors, start: Time, end: Time, field: str | None, is_lowest: bool) -> Values:
        tags, times, values = self._core.extremes(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)), is_lowest)
        return Values(tags, numpy.asarray(times), numpy.asarray(values))

    def resample(self, every: Width, how: str = "mean", sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Frame:
        """Sensors side by side in bins of equal width ("15m", "1h", "1d" or a timedelta), counted from 1970.

        `how` is mean, min, max, sum, count, std, first or last. Answered from metrics where whole blocks lie
        in a bin. A bin without a reading of any sensor is left out.
        """
        bin_ = (_width_ns(every), how)
        tags, time, values, missing = self._core.resample(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)), bin_)
        return Frame(tags, numpy.asarray(time), numpy.asarray(values), missing)

    def _chosen(self, sensors: Sensors) -> list[tuple[str, list[str]]]:
        if sensors is None:
            return []
        if not isinstance(sensors, Mapping):
            tags = self.tags
            if len(tags) != 1:
                raise _tidefall.InvalidError(f"table {self.name} has the tags {', '.join(tags)}: say which, as in {{{tags[0]!r}: [...]}}" if tags else f"table {self.name} has no tags to choose by")
            sensors = {tags[0]: sensors}
        return [(tag, [values] if isinstance(values, str) else [str(value) for value in values]) for tag, values in sensors.items()]


def to_ns(time: Time) -> int | None:
    """Nanoseconds since 1970 of a time."""
    return None if time is None else _moment(time)


def _moment(time: Time) -> int:
    if isinstance(time, pyarrow.Scalar) and time.is_valid:
        time = numpy.datetime64(time.value, time.type.unit) if isinstance(time, pyarrow.TimestampScalar) else time.as_py()
    if isinstance(time, str):
        return _tidefall.Database.parse_time(time)
    if isinstance(time, (int, numpy.integer)) and not isinstance(time, bool):
        if abs(int(time)) >= 1 << 63:
            raise _outside(time)
        return int(time)
    if isinstance(time, (datetime.date, numpy.datetime64)):
        return _datetime_ns(time)
    raise _tidefall.InvalidError(f"{time!r} is no time: give text, a datetime, or nanoseconds since 1970")


def _datetime_ns(time: datetime.date | numpy.datetime64) -> int:
    try:
        if hasattr(time, "to_datetime64"):  # pandas, which keeps nanoseconds
            count = time.to_datetime64()
        elif isinstance(time, datetime.datetime) and time.tzinfo is not None:
            count = numpy.datetime64(time.astimezone(datetime.timezone.utc).replace(tzinfo=None))
        else:
            count = numpy.datetime64(time)
    except (OverflowError, ValueError):
        raise _outside(time) from None
    if numpy.isnat(count):
        raise _tidefall.InvalidError(f"{time!r} is no time")
    return int(_nanoseconds(numpy.array([count]))[0].astype(numpy.int64))


def _nanoseconds(times: numpy.ndarray) -> numpy.ndarray:
    """Times of any unit in nanoseconds; numpy itself wraps what does not fit."""
    times = times.astype(times.dtype.newbyteorder("="))
    found = times.astype("datetime64[ns]")
    # Of finer units everything fits.
    if numpy.datetime_data(times.dtype)[0] not in ("ps", "fs", "as"):
        wrapped = (found.astype(times.dtype) != times) & ~numpy.isnat(times)
        if wrapped.any():
            raise _outside(times[wrapped][0])
    return found


def _outside(time: object) -> _tidefall.InvalidError:
    return _tidefall.InvalidError(f"the time {time} lies outside of 1677-09-21 .. 2262-04-11")


def _width_ns(every: Width) -> int:
    """Nanoseconds of the width of a bin."""
    if isinstance(every, str):
        # The units of pandas that mean the same.
        width_ns = _tidefall.Database.parse_duration(re.sub(r"(?<=[\d ])(min|H|D)\b", lambda unit: unit[0][0].lower(), every))
    elif isinstance(every, (datetime.timedelta, numpy.timedelta64)) and not numpy.isnat(numpy.timedelta64(every)):
        import pandas

        try:
            width_ns = int(pandas.Timedelta(every).as_unit("ns").value)
        except (OverflowError, ValueError) as error:
            raise _tidefall.InvalidError(f"bins cannot be {every!r} wide: {error}") from None
    else:
        raise _tidefall.InvalidError(f'{every!r} is no width of bins: give text such as "1h", or a timedelta')
    if width_ns <= 0:
        raise _tidefall.InvalidError("bins must be wider than nothing")
    return width_ns


def _to_floats(bounds: Bounds) -> tuple[float, float]:
    try:
        low, high = bounds
        return -numpy.inf if low is None else float(low), numpy.inf if high is None else float(high)
    except (TypeError, ValueError):
        raise _tidefall.InvalidError(f"{bounds!r} are no bounds: give two numbers, or None for no bound") from None


def _to_arrow(data: Any) -> Any:
    """Something that offers its rows by Arrow's C interface."""
    try:
        if isinstance(data, Mapping):
            return pyarrow.table({str(name): _to_array(values) for name, values in data.items()})
        if type(data).__module__.partition(".")[0] == "pandas":
            return pyarrow.Table.from_pandas(_with_index(data).rename(columns=str), preserve_index=False)
        if isinstance(data, pyarrow.RecordBatch):
            return pyarrow.Table.from_batches([data])
        if hasattr(data, "__arrow_c_stream__"):
            # pyarrow lays out columns without values as the interface wants them; polars does not.
            return pyarrow.RecordBatchReader.from_stream(data)
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:
        raise _tidefall.InvalidError(f"the data cannot be written: {error}") from error
    raise TypeError(f"{type(data).__name__} cannot be written: give a frame, an Arrow table or a dictionary of columns")


def _with_index(data: Any) -> Any:
    """A pandas frame whose index has become columns, unless it only counts the rows."""
    index = data.index
    if index.nlevels == 1 and index.name is None and (index.dtype.kind in "iu" or not len(index)) and index.dtype.kind != "M":
        return data.reset_index(drop=True)
    names = []
    for place, name in enumerate(index.names):
        if name is None and index.get_level_values(place).dtype.kind != "M":
            raise _tidefall.InvalidError("the index has no name: name it, so that it becomes a column, or reset_index(drop=True)")
        names.append("time" if name is None else name)
    return data.rename_axis(index=names).reset_index()


def _to_array(values: Any) -> Any:
    if isinstance(values, numpy.ndarray) and values.dtype.kind == "M":
        return pyarrow.array(_nanoseconds(values))
    return pyarrow.array(values)

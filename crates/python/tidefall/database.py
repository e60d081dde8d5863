"""Databases and their tables."""

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from . import _tidefall, remote
from .answers import Columns, Frame, Rows, Values, Written, line, matrix, vector
from .data import check_time, to_arrow, to_wide
from .parameters import parameters as values_of
from .records import Records
from .times import TIME_MAX, TIME_MIN, Time, Width, bins, required_ns, to_ns

Bounds = tuple[float | None, float | None]
"""Two numbers; None for no bound."""

Chosen = list[tuple[str, list[str]]]
Range = tuple[int | None, int | None]

Stretch = tuple[int, int, int]
"""The first and the last nanosecond in which readings lie, and how many rows a sensor has there at most."""

# What a piece of `Table.frames` takes, if nobody says how many rows it shall have.
FRAME_BYTES = 16 << 20
# How much of a stretch, as rows times nanoseconds, its halves may come to together if they tell more about where its rows lie. Rows
# that lie evenly come to a half, those close together to less. A chunk in the middle counts as a whole on both sides: of
# fewer than five chunks the halves come to more, and say nothing that an even cut would not do as well.
KNOWN_SHARE = 0.6

Sensors = str | Iterable[str] | Mapping[str, str | Iterable[str]] | None
"""Which sensors: all (None), the values of the only tag, or for each of some tags its values."""


How = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""An aggregate, several, or for each of some fields its aggregates."""


def open(
    path: str | os.PathLike[str], *, read_only: bool = False, memory_mib: int | None = None, tz: str | datetime.tzinfo | None = None,
) -> "Database":
    """Opens the database in the directory `path`, and creates it if it is missing.

    One process at a time may write; any number may open it with `read_only=True` meanwhile, which shows
    the moment of opening, or of the last `refresh`. `memory_mib` bounds what the database takes for readings, merges and queries.
    A process that is forked off must not use it, and gets a `ClosedError`.

    Times are moments: written with a zone they are brought to UTC, without one they are in UTC. They come back in UTC
    without a zone, or, with `tz`, in that zone: `tz="UTC"` gives what was written with a zone back with one.
    """
    folder = os.fsdecode(path)
    if not folder:
        raise _tidefall.InvalidError("the path of the database is empty")
    zone = _zone(tz)
    # The process may move to another directory while the database is open.
    return Database(_tidefall.Database(os.path.abspath(folder), read_only, memory_mib), zone)


def connect(url: str, *, tz: str | datetime.tzinfo | None = None) -> "Database":
    """Connects to a server, `tidefall serve`, at an address such as "http://127.0.0.1:8527"; the objects are the same as
    those of a database in this process, and `tz` means the same as in `open`."""
    zone = _zone(tz)
    return Database(remote.Database(url), zone)


class Database:
    """An open database. Closes at the end of a `with` block, or by `close`."""

    def __init__(self, core: "_tidefall.Database | remote.Database", tz: str | None = None):
        self._core, self._tz = core, tz

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

    def refresh(self) -> bool:
        """Shows what another process has written since a database that is opened with `read_only=True` was opened or refreshed last;
        returns whether there was anything.

        Answers that were begun before stay as they are. What is not acknowledged as durable may be missing. If the folder was replaced by
        a copy or another database meanwhile, open it again instead. A database that is written
        here, or behind a server, always shows what there is.
        """
        return self._core.refresh()

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._core.tables()

    def table(self, name: str) -> "Table":
        """A table that exists."""
        self._core.schema(name)
        return Table(self, name)

    def records(self, name: str) -> Records:
        """A table of records: one that was made `WITH (model = 'records', ...)`, or that its first `write` makes."""
        return Records(self, name)

    def sql(self, query: str, parameters: Sequence[Any] | None = None) -> Rows:
        """Runs SQL, and returns when it has an answer's first rows: `INSERT` and the like are done then.

        The rest of the answer is computed while it is read, and can be larger than memory; a query whose answer is
        closed or let go of before its end stops, also on a server. What a `SET` of its own
        says holds for all later calls.

        `parameters` are the values for `$1`, `$2` and so on, or for one `?` after the other: numbers, texts, times, bools and None. A
        value is never taken for more than that: `db.sql("SELECT * FROM plant WHERE sensor = $1 AND time >= $2", [name, since])`.
        """
        return Rows(self._core.sql(query, values_of(parameters)), self._tz)

    def write(
        self, table: str, data: Any, *, time: str | None = None, tags: str | Sequence[str] = (), existing: str = "count",
    ) -> Written:
        """Writes rows, and creates table and columns that are missing; returns how many rows.

        `data` is a pandas or polars frame, anything of Arrow, or a dictionary of columns, in which a single value stands
        in all rows; the levels of the index of a pandas frame are columns, too. `time` names the time column (when
        absent the one called "time" if it is of a time type, else the first timestamp, else the first date; where numbers
        or texts are called "time", "timestamp" or the like beside these, it must be named). `tags` names those that
        name the sensor; all others are fields. Returns when the rows are on disk. A row with the time and tags of an
        earlier one replaces it, field by field. Many rows are written in pieces, one after the other: when one of them fails, the earlier
        ones stay written. A table that is there may get new tags, but rows must have all of its own; a column of None in `data` says
        that they have none.

        `existing` says what becomes of earlier rows with the same time and tags: "count" also counts those that are
        replaced, in `replaced` of the answer; "replace" does not, and saves the time; with "refuse" a piece that would
        replace any is not written, and raises `ConflictError`.
        """
        tags, rows = [tags] if isinstance(tags, str) else list(tags), to_arrow(data)
        check_time(rows.schema, time, tags)
        return Written(*self._core.write(table, rows, time, tags, _existing(existing)))

    def write_wide(
        self, table: str, data: Any, *, time: str | None = None, tag: str = "sensor", field: str = "value", existing: str = "count",
    ) -> Written:
        """Writes a wide frame, in which every column but that of time is a sensor; the fastest way in.

        The name of a column becomes the value of `tag`, its values those of `field`; gaps are no readings. Returns how
        many values. In this process all of it is written or nothing. A field that is new has the type that holds the
        values of all columns. `existing` means the same as for `write`.
        """
        if tag == field:
            raise _tidefall.InvalidError(f"the tag {tag!r} and the field {field!r} have the same name: say another tag= or field=")
        wide, name = to_wide(data, time, of_one_type=not self._has_field(table, field))
        return Written(*self._core.write_wide(table, wide, name, (tag, field), _existing(existing)))

    def _has_field(self, table: str, field: str) -> bool:
        try:
            return any(name == field for name, _ in self._core.schema(table)[2])
        except _tidefall.NotFoundError:
            return False

    def flush(self) -> None:
        """Writes what is in memory to objects."""
        self._core.flush()

    def cascade(self, table: str | None = None, *, to: str = "age") -> int:
        """Moves readings to the next models, as far as their age says, or all to "short" or "long" columns; returns how many."""
        return self._core.cascade(table, to)


class Table:
    """A table, and the ways to read it without SQL. Times are from `start` on and before `end`."""

    def __init__(self, database: Database, name: str):
        self._database, self._core, self._tz, self.name = database, database._core, database._tz, name

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

    def write(self, data: Any, *, time: str | None = None, existing: str = "count") -> Written:
        """Writes rows with the tags that the table has; see `Database.write`."""
        return self._database.write(self.name, data, time=time, tags=self.tags, existing=existing)

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
        keep = (True, *_to_floats(between, (-numpy.inf, numpy.inf))) if between is not None else (False, *_to_floats(outside, (numpy.nan, numpy.nan))) if outside is not None else None
        return self._frame(self._chosen(sensors), field, (to_ns(start), to_ns(end)), keep)

    def _frame(self, chosen: Chosen, field: str | None, time: Range, keep: tuple[bool, float, float] | None) -> Frame:
        tags, times, values, missing = self._core.frame(self.name, chosen, field, time, keep)
        lines = len(tags[0][1]) if tags else 1
        return Frame(tags, numpy.asarray(times), matrix(values, lines), missing, self._tz)

    def frames(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None, rows: int | None = None) -> Iterator[Frame]:
        """As `rows`, in pieces that follow each other in time, for what is larger than memory.

        A piece has about `rows` rows, or 16 MiB of values, and never more than twice as many. Every piece shows the moment at
        which it is read.
        """
        chosen = self._chosen(sensors)
        found = self._core.extent(self.name, chosen, (to_ns(start), to_ns(end)))
        if found is None:
            return
        *whole, sensor_count = found
        if rows is None:
            rows = max(FRAME_BYTES // (8 * sensor_count), 1)
        elif rows < 1:
            raise _tidefall.InvalidError("a piece must have at least one row")
        for first, last, rows_max in self._stretches(chosen, tuple(whole), rows):
            pieces = max((rows_max + rows // 2) // rows, 1)
            width = width_max = -(-(last - first + 1) // pieces)
            begin = first
            while begin <= last:
                # The rows of a sensor are known, not how many of them are at the times of others.
                wanted_end = min(begin + width - 1, last)
                end = self._core.frame_end(self.name, chosen, _bounds(begin, wanted_end), 2 * rows) if rows_max * sensor_count > 2 * rows else wanted_end
                piece = self._frame(chosen, field, _bounds(begin, end), None)
                if len(piece):
                    yield piece
                if end < wanted_end:
                    width = max((end - begin + 1) // 2, 1)
                elif 2 * len(piece) <= rows:
                    # Where nothing is for long, the next rows are found in a few steps.
                    width = min((2 if len(piece) else 16) * width, width_max)
                begin = end + 1

    def _stretches(self, chosen: Chosen, whole: Stretch, rows: int) -> Iterator[Stretch]:
        """Stretches that together have all rows of `whole`, one behind the other: each has at most twice as many as wanted, or
        lies so that the index does not tell in which part of it they are. Each is at most half as long as the one that
        it is part of, so that there are no more than 64 within each other."""
        first, last, rows_max = whole
        if rows_max <= 2 * rows or first == last:
            yield whole
            return
        middle = (first + last) // 2
        halves = [self._core.extent(self.name, chosen, _bounds(*half)) for half in ((first, middle), (middle + 1, last))]
        parts = [tuple(half[:3]) for half in halves if half is not None]
        if sum(_area(part) for part in parts) > KNOWN_SHARE * _area(whole):
            yield whole
            return
        for part in parts:
            yield from self._stretches(chosen, part, rows)

    def columns(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Columns:
        """Every sensor by itself: its times and its values."""
        tags, series = self._core.series(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)))
        return Columns(tags, [(numpy.asarray(time), line(values)) for time, values in series], self._tz)

    def at(self, time: Time, sensors: Sensors = None, *, field: str | None = None) -> Values:
        """The value of every sensor at exactly this time; sensors without one are left out."""
        tags, times, values = self._core.at(self.name, self._chosen(sensors), field, required_ns(time))
        return Values(tags, numpy.asarray(times), vector(values), self._tz)

    def latest(self, sensors: Sensors = None, *, field: str | None = None) -> Values:
        """The latest value of every sensor."""
        tags, times, values = self._core.latest(self.name, self._chosen(sensors), field)
        return Values(tags, numpy.asarray(times), vector(values), self._tz)

    def lowest(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Values:
        """The least value of every sensor and its time, the earliest if there are several; NaN is passed over."""
        return self._extremes(sensors, start, end, field, is_lowest=True)

    def highest(self, sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Values:
        """The greatest value of every sensor and its time, the earliest if there are several; NaN is passed over."""
        return self._extremes(sensors, start, end, field, is_lowest=False)

    def _extremes(self, sensors: Sensors, start: Time, end: Time, field: str | None, is_lowest: bool) -> Values:
        tags, times, values = self._core.extremes(self.name, self._chosen(sensors), field, (to_ns(start), to_ns(end)), is_lowest)
        return Values(tags, numpy.asarray(times), vector(values), self._tz)

    def resample(self, every: Width, how: How = "mean", sensors: Sensors = None, start: Time = None, end: Time = None, *, field: str | None = None) -> Frame:
        """Sensors side by side in bins of equal width ("15m", "1h", "1d" or a timedelta), counted from 1970, or of
        months ("MS", "3 months"), quarters ("Q") or years ("Y"). Weeks ("W") begin on Mondays. The time of a bin is its start.

        `how` is mean, min, max, sum, count, std, first or last; or several of them, of which each sensor has a line; or
        a dictionary of fields and what is made of each. All values are floats. Answered from metrics where whole
        blocks lie in a bin. A bin without a reading of any sensor is left out. Bins are cut in UTC, also where times are
        shown in a zone.
        """
        width, chosen, period = bins(every), self._chosen(sensors), (to_ns(start), to_ns(end))
        asked = _aggregates(how, field)
        found = [self._core.resample(self.name, chosen, name, period, (width, aggregates)) for name, aggregates in asked]
        tags = found[0][0]
        if len(asked) == 1:
            _, time, values, missing = found[0]
            time, values = numpy.asarray(time), numpy.asarray(values)
        else:
            time, values, missing = _side_by_side(found, [len(aggregates) for _, aggregates in asked])
        if isinstance(how, str):
            return Frame(tags, time, values, missing, self._tz)
        fields = [(name,) if isinstance(how, Mapping) else () for name, _ in asked]
        what = [(*name, aggregate) for name, (_, aggregates) in zip(fields, asked) for aggregate in aggregates]
        return Frame(tags, time, values, missing, self._tz, what)

    def _chosen(self, sensors: Sensors) -> Chosen:
        if sensors is None:
            return []
        if not isinstance(sensors, Mapping):
            tags = self.tags
            if len(tags) != 1:
                raise _tidefall.InvalidError(f"table {self.name} has the tags {', '.join(tags)}: say which, as in {{{tags[0]!r}: [...]}}" if tags else f"table {self.name} has no tags to choose by")
            sensors = {tags[0]: sensors}
        return [(tag, _tag_values(tag, values)) for tag, values in sensors.items()]


def _bounds(first: int, last: int) -> Range:
    """Bounds of the time from the first to the last nanosecond; at the ends of time there is nothing that they could leave out."""
    return first if first > TIME_MIN else None, last + 1 if last < TIME_MAX else None


def _area(stretch: Stretch) -> int:
    first, last, rows = stretch
    return (last - first + 1) * rows


def _tag_values(tag: str, values: Any) -> list[str]:
    """The wanted values of a tag: one, or several of them."""
    several = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    if any(value is None for value in several):
        raise _tidefall.InvalidError(f"sensors by tag {tag!r}: None is no value of a tag; leave the tag out for all of its sensors")
    return [str(value) for value in several]


def _to_floats(bounds: Bounds, none: tuple[float, float]) -> tuple[float, float]:
    """Bounds as numbers; where there is none, those that stand for that."""
    try:
        low, high = bounds
        return none[0] if low is None else float(low), none[1] if high is None else float(high)
    except (TypeError, ValueError):
        raise _tidefall.InvalidError(f"{bounds!r} are no bounds: give two numbers, or None for no bound") from None


def _aggregates(how: How, field: str | None) -> list[tuple[str | None, list[str]]]:
    """What is made of which field."""
    several = lambda one: [one] if isinstance(one, str) else list(one) if isinstance(one, Iterable) else [one]
    if isinstance(how, Mapping):
        if field is not None:
            raise _tidefall.InvalidError("say the field either with field= or in the dictionary of aggregates")
        asked = [(name, several(one)) for name, one in how.items()]
    else:
        asked = [(field, several(how))]
    if not asked or not all(aggregates for _, aggregates in asked):
        raise _tidefall.InvalidError("name at least one aggregate, such as mean")
    for _, aggregates in asked:
        if strange := [one for one in aggregates if not isinstance(one, str)]:
            raise _tidefall.InvalidError(f"{strange[0]!r} is no aggregate: name some, such as mean, or ['min', 'max']")
        if repeated := [one for place, one in enumerate(aggregates) if one in aggregates[:place]]:
            raise _tidefall.InvalidError(f"the aggregate {repeated[0]!r} stands there twice")
    return asked


def _side_by_side(found: list[Any], counts: list[int]) -> tuple[numpy.ndarray, numpy.ndarray, int]:
    """Lays what was made of several fields side by side: for each sensor a line of each aggregate of each field."""
    sensors = remote.keys(found[0][0])
    times = numpy.unique(numpy.concatenate([numpy.asarray(time) for _, time, _, _ in found]))
    values = numpy.full((len(sensors), sum(counts), len(times)), numpy.nan)
    behind = 0
    for (tags, time, lines, _), count in zip(found, counts):
        places = numpy.searchsorted(times, numpy.asarray(time))
        lines = numpy.asarray(lines).reshape(len(remote.keys(tags)), count, len(places))
        # Sensors may come between two questions.
        line_of = {sensor: line for line, sensor in enumerate(remote.keys(tags))}
        for line, sensor in enumerate(sensors):
            if sensor in line_of:
                values[line, behind : behind + count, places] = lines[line_of[sensor]].T
        behind += count
    return times, values.reshape(len(sensors) * sum(counts), len(times)), int(numpy.isnan(values).sum())


def _existing(word: str) -> str:
    if word not in ("count", "replace", "refuse"):
        raise _tidefall.InvalidError(f"existing={word!r} is unknown: say count, replace or refuse")
    return word


def _zone(tz: str | datetime.tzinfo | None) -> str | None:
    """The name of a zone that there is."""
    if tz is None:
        return None
    import pandas

    try:
        name = pyarrow.timestamp("ns", tz).tz or ""
        pandas.Timestamp(0, tz="UTC").tz_convert(name)
    except Exception as error:
        raise _tidefall.InvalidError(f"tz={tz!r} is no zone, such as UTC or Europe/Berlin: {error}") from None
    return name

"""Answers: each holds its data in the form in which it was read, and turns into others on demand."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pyarrow

from . import _tidefall

Tags = list[tuple[str, list[str | None]]]


READ = "these rows were read; run the statement again, or keep to_arrow()"


def labels(tags: Tags) -> list[str]:
    """A name for each sensor: the value of its tag, or of all of them with commas in between."""
    values = [column for _, column in tags]
    if not values:
        return ["value"]
    return [",".join("" if value is None else value for value in sensor) for sensor in zip(*values)]


def make_unique(names: list[str]) -> list[str]:
    """The names, with a number behind all but the first that are the same, as in the layer `rows`. Names that were unique
    stay."""
    taken, counts, unique = set(names), dict.fromkeys(names, 0), []
    for name in names:
        counts[name] += 1
        if counts[name] > 1:
            while f"{name}#{counts[name]}" in taken:
                counts[name] += 1
            taken.add(f"{name}#{counts[name]}")
        unique.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return unique


def _beside(tags: dict[str, Any]) -> dict[str, Any]:
    """Tags under the names that they have beside the columns time and value."""
    return dict(zip(make_unique(["time", "value", *tags])[2:], tags.values()))


class Written(int):
    """How many rows were written. `replaced` is how many of them took the place of others with the same tags and time:
    of readings that were there before, or of rows before them in the same data; None where it was not counted."""

    replaced: int | None

    def __new__(cls, rows: int, replaced: int | None = None) -> "Written":
        written = super().__new__(cls, rows)
        written.replaced = replaced
        return written

    def __reduce__(self) -> Any:
        return Written, (int(self), self.replaced)

    __str__ = int.__repr__

    def __repr__(self) -> str:
        replaced = "" if self.replaced is None else f", {self.replaced:,} of them replaced others"
        return f"<tidefall.Written: {int(self):,} rows{replaced}>"


def plain(column: pyarrow.Array | pyarrow.ChunkedArray) -> numpy.ndarray:
    """A column as numpy has it: text as objects, booleans too where some are missing, which are None then; integers
    with gaps as floats; times with NaT where some are missing."""
    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_string_view(column.type):
        column = column.cast(pyarrow.large_string())
    found = column.to_numpy(zero_copy_only=False)
    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        return found.astype(object)
    return found if found.flags.writeable else found.copy()


def vector(values: Any) -> numpy.ndarray:
    """As `matrix`, of one line."""
    return numpy.asarray(values) if not isinstance(values, _tidefall.Batch) else plain(pyarrow.record_batch(values).column(0))


def line(values: Any) -> numpy.ndarray:
    """As `vector`, but integers of a column of Arrow, which are those with gaps that floats cannot hold, stay integers and
    are masked."""
    column = pyarrow.record_batch(values).column(0) if isinstance(values, _tidefall.Batch) else values
    if isinstance(column, pyarrow.Array) and pyarrow.types.is_integer(column.type):
        return numpy.ma.MaskedArray(column.fill_null(0).to_numpy(), ~numpy.asarray(column.is_valid()))
    return plain(column) if isinstance(column, pyarrow.Array) else numpy.asarray(column).ravel()


def matrix(values: Any, lines: int) -> numpy.ndarray:
    """The values of so many lines: memory that numpy views, or a column of Arrow, line behind line."""
    if not isinstance(values, _tidefall.Batch):
        return numpy.asarray(values)
    found = plain(pyarrow.record_batch(values).column(0))
    return found.reshape(lines, len(found) // lines if lines else 0)


def _index(time: numpy.ndarray, tz: str | None) -> Any:
    """Times in UTC as an index of pandas, in the zone if there is one."""
    import pandas

    index = pandas.DatetimeIndex(time, name="time")
    return index if tz is None else index.tz_localize("UTC").tz_convert(tz)


def _times(time: numpy.ndarray, tz: str | None) -> pyarrow.Array:
    """Times in UTC as an array of Arrow, in the zone if there is one."""
    return pyarrow.array(time, pyarrow.timestamp("ns")).view(pyarrow.timestamp("ns", tz))


def _end_to_end(parts: list[numpy.ndarray]) -> numpy.ndarray:
    """The values of several sensors behind each other, masked if those of one are."""
    parts = [part for part in parts if len(part)] or parts
    has_masked = any(isinstance(part, numpy.ma.MaskedArray) for part in parts)
    return numpy.ma.concatenate(parts) if has_masked else numpy.concatenate(parts)


def _column(values: numpy.ndarray, tz: str | None, has_gaps: bool = False) -> pyarrow.Array:
    """Values as an array of Arrow, times of them in the zone if there is one; with gaps, NaN is none."""
    return _times(values, tz) if values.dtype.kind == "M" else pyarrow.array(values, from_pandas=has_gaps and values.dtype.kind == "f")


def _series(values: numpy.ndarray, tz: str | None) -> Any:
    """Values as pandas takes them for a column, times of them in the zone if there is one."""
    import pandas

    if isinstance(values, numpy.ma.MaskedArray):
        return pandas.arrays.IntegerArray(values.data, numpy.ma.getmaskarray(values))
    if values.dtype.kind != "M" or tz is None:
        return values
    return pandas.DatetimeIndex(values).tz_localize("UTC").tz_convert(tz)


def _zoned(type_: pyarrow.DataType, tz: str | None) -> pyarrow.DataType:
    """Of times without a zone, which are in UTC, the type that shows them in a zone; of lists of them, too."""
    if pyarrow.types.is_list(type_) or pyarrow.types.is_large_list(type_):
        kind = pyarrow.list_ if pyarrow.types.is_list(type_) else pyarrow.large_list
        return kind(type_.value_field.with_type(_zoned(type_.value_type, tz)))
    is_plain = pyarrow.types.is_timestamp(type_) and type_.tz is None
    return pyarrow.timestamp(type_.unit, tz) if is_plain and tz is not None else type_


class _Notebook:
    def _repr_html_(self) -> str:
        return self.to_pandas()._repr_html_()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hands the data to any library of Arrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> Any:
        """A polars frame."""
        import polars

        return polars.from_arrow(self.to_arrow())


class Frame(_Notebook):
    """Sensors side by side.

    `time` has the time of each row, `values` a line for each sensor and in it a place for each row; NaN where
    a sensor has no value, which `missing` counts. Integers with gaps are floats; text and booleans have None there,
    times NaT.
    `sensors` names the lines; a name that comes again has a number behind it, as in "a#2". `tags` has the tags of each
    line. Where several aggregates were asked for, a sensor has a line for each, called "a.mean" and so on.

    All times are in UTC. In frames and tables made of them they have a zone if the database was opened with `tz`.
    """

    def __init__(self, tags: Tags, time: numpy.ndarray, values: numpy.ndarray, missing: int, tz: str | None = None, what: Sequence[tuple[str, ...]] = ()):
        self.time, self.values, self.missing, self._tz = time, values, missing, tz
        self.tags = {tag: [value for value in column for _ in what or [()]] for tag, column in tags}
        # The parts of the name of each line.
        self._parts = [(sensor, *part) for sensor in make_unique(labels(tags)) for part in what or [()]]
        self.sensors = make_unique([".".join(parts) for parts in self._parts])

    def _names(self) -> list[str]:
        """The names of the sensors beside a column called time."""
        return make_unique(["time", *self.sensors])[1:]

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"<tidefall.Frame: {len(self.time)} rows of {len(self.sensors)} sensors>"

    def to_numpy(self) -> numpy.ndarray:
        """The values, a row for each time and a column for each sensor; a view."""
        return self.values.T

    def to_pandas(self) -> Any:
        """A data frame with times as its index and sensors as its columns, with the aggregates below them where there
        are several; the values are not copied."""
        import pandas

        several = self._parts and len(self._parts[0]) > 1
        columns = pandas.MultiIndex.from_tuples(self._parts) if several else self.sensors
        index = _index(self.time, self._tz)
        if self.values.dtype.kind == "M" and self._tz is not None:
            return pandas.DataFrame({name: _series(line, self._tz) for name, line in zip(self.sensors, self.values)}, index=index)
        return pandas.DataFrame(self.values.T, index=index, columns=columns, copy=False)

    def to_arrow(self) -> pyarrow.Table:
        """A table with a column of times and one for each sensor."""
        columns = [_column(line, self._tz, self.missing > 0) for line in self.values]
        return pyarrow.table([_times(self.time, self._tz), *columns], names=["time", *self._names()])

    def to_dict(self) -> dict[str, numpy.ndarray]:
        """The times under "time", and the values of every sensor under its name ("time#2" for one called time); views."""
        return {"time": self.time, **dict(zip(self._names(), self.values))}

    def plot(self, **options: Any) -> Any:
        """Draws all sensors over time with matplotlib; `options` are those of pandas' `plot`."""
        return self.to_pandas().plot(**options)


class Columns(_Notebook):
    """Every sensor by itself: `series` has its times and values, in the order of `sensors`. Integers of 64 bits with gaps
    are masked arrays; smaller ones are floats, with NaN where there is none.

    In frames and tables the tags stand beside columns called "time" and "value": there, a tag called so is "time#2" or
    "value#2".
    """

    def __init__(self, tags: Tags, series: list[tuple[numpy.ndarray, numpy.ndarray]], tz: str | None = None):
        self.tags, self.sensors, self.series, self._tz = dict(tags), make_unique(labels(tags)), series, tz

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return f"<tidefall.Columns: {len(self.series)} sensors, {sum(len(time) for time, _ in self.series)} values>"

    def to_dict(self) -> dict[str, tuple[numpy.ndarray, numpy.ndarray]]:
        """Times and values of every sensor under its name; views."""
        return dict(zip(self.sensors, self.series))

    def to_numpy(self) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
        """Times and values of every sensor; views."""
        return self.series

    def to_arrow(self) -> pyarrow.Table:
        """A row for each sensor: its tags, a list of times and one of values."""
        tags = {name: pyarrow.array(values, pyarrow.string()) for name, values in _beside(self.tags).items()}
        offsets = pyarrow.array(numpy.cumsum([0, *(len(time) for time, _ in self.series)]))
        time, values = self._together()
        lists = lambda column: pyarrow.LargeListArray.from_arrays(offsets, column)
        return pyarrow.table({**tags, "time": lists(_times(time, self._tz)), "value": lists(_column(values, self._tz))})

    def to_pandas(self) -> Any:
        """A long data frame: tags, time and value of every reading."""
        import pandas

        counts = [len(time) for time, _ in self.series]
        tags = {name: numpy.repeat(numpy.array(values, dtype=object), counts) for name, values in _beside(self.tags).items()}
        time, values = self._together()
        return pandas.DataFrame({**tags, "time": _index(time, self._tz), "value": _series(values, self._tz)})

    def _together(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        empty = numpy.array([], "datetime64[ns]"), numpy.array([])
        time, values = zip(*(self.series or [empty]))
        return numpy.concatenate(time), _end_to_end(list(values))


class Values(_Notebook):
    """One value a sensor: `values` and their `time`, in the order of `sensors`. Tags are named as by `Columns`."""

    def __init__(self, tags: Tags, time: numpy.ndarray, values: numpy.ndarray, tz: str | None = None):
        self.tags, self.time, self.values, self._tz = dict(tags), time, values, tz
        self.sensors = make_unique(labels(tags))[: len(values)]

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<tidefall.Values: of {len(self.values)} sensors>"

    def to_dict(self) -> dict[str, Any]:
        """The value of every sensor under its name."""
        # Times are moments of numpy, of which a list has the nanoseconds alone.
        values = list(self.values) if self.values.dtype.kind == "M" else self.values.tolist()
        return dict(zip(self.sensors, values))

    def to_numpy(self) -> numpy.ndarray:
        """The values."""
        return self.values

    def to_arrow(self) -> pyarrow.Table:
        """A row for each sensor: its tags, the time and the value."""
        tags = {name: pyarrow.array(values, pyarrow.string()) for name, values in _beside(self.tags).items()}
        return pyarrow.table({**tags, "time": _times(self.time, self._tz), "value": _column(self.values, self._tz)})

    def to_pandas(self) -> Any:
        """A data frame with a row for each sensor."""
        import pandas

        return pandas.DataFrame({**_beside(self.tags), "time": _index(self.time, self._tz), "value": _series(self.values, self._tz)})


class Rows(_Notebook):
    """The answer to SQL. It is computed while it is read, and read once: iterate over it in batches when it
    is larger than memory, or turn it into one table, which it keeps. Reading it again, or after `close`, raises
    `ClosedError`. Several threads may read it; each gets other batches."""

    def __init__(self, core: _tidefall.Stream, tz: str | None = None):
        self._core, self._tz, self._table = core, tz, None

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        return pyarrow.schema([field.with_type(_zoned(field.type, self._tz)) for field in pyarrow.schema(self._core)])

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """The batches of the answer, one after the other."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if not self._core.is_open():
            raise _tidefall.ClosedError(READ)
        schema = self.schema
        while (batch := self._core.next()) is not None:
            yield self._in_zone(pyarrow.record_batch(batch), schema)

    def _in_zone(self, batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
        if self._tz is None:
            return batch
        columns = [column if column.type == type_ else column.cast(type_) for column, type_ in zip(batch.columns, schema.types)]
        return pyarrow.RecordBatch.from_arrays(columns, schema=schema)

    def __repr__(self) -> str:
        return f"<tidefall.Rows: {', '.join(self.schema.names)}>"

    def close(self) -> None:
        """Stops the query."""
        self._core.close()

    def to_arrow(self) -> pyarrow.Table:
        """A table of Arrow."""
        if self._table is None:
            self._table = pyarrow.Table.from_batches(self, self.schema)
        return self._table

    def to_pandas(self, **options: Any) -> Any:
        """A data frame; `options` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """A polars frame; a name that comes again has a number behind it, as in "v#2"."""
        import polars

        return polars.from_arrow(self.to_arrow().rename_columns(self._names()))

    def to_numpy(self) -> dict[str, numpy.ndarray]:
        """An array for each column; a name that comes again has a number behind it, as in "v#2"."""
        return {name: column.to_numpy() for name, column in zip(self._names(), self.to_arrow().columns)}

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each column; a name that comes again has a number behind it, as in "v#2"."""
        return {name: column.to_pylist() for name, column in zip(self._names(), self.to_arrow().columns)}

    def _names(self) -> list[str]:
        return make_unique(self.schema.names)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hands the data to any library of Arrow, batch by batch."""
        source = self._core if self._table is None else self._table
        if self._table is None and self._tz is not None:
            schema, reader = self.schema, pyarrow.RecordBatchReader.from_stream(self._core)
            source = pyarrow.RecordBatchReader.from_batches(schema, (self._in_zone(batch, schema) for batch in reader))
        return source.__arrow_c_stream__(requested_schema)

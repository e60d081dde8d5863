"""Answers: each holds its data in the form in which it was read, and turns into others on demand."""

from collections.abc import Iterator
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
    """The names, with a number behind all but the first that are the same, as in the layer `rows`."""
    used: set[str] = set()
    unique = []
    for name in names:
        candidate, count = name, 1
        while candidate in used:
            count += 1
            candidate = f"{name}#{count}"
        used.add(candidate)
        unique.append(candidate)
    return unique


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
    a sensor has no value, which `missing` counts. Integers with gaps are floats. `sensors` names the lines;
    a name that comes again has a number behind it, as in "a#2".
    """

    def __init__(self, tags: Tags, time: numpy.ndarray, values: numpy.ndarray, missing: int):
        self.tags, self.time, self.values, self.missing = dict(tags), time, values, missing
        self.sensors = make_unique(labels(tags))

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
        """A data frame with times as its index and sensors as its columns; the values are not copied."""
        import pandas

        index = pandas.DatetimeIndex(self.time, name="time")
        return pandas.DataFrame(self.values.T, index=index, columns=self.sensors, copy=False)

    def to_arrow(self) -> pyarrow.Table:
        """A table with a column of times and one for each sensor."""
        is_float = self.values.dtype.kind == "f"
        columns = [pyarrow.array(line, from_pandas=is_float and self.missing > 0) for line in self.values]
        return pyarrow.table([pyarrow.array(self.time), *columns], names=["time", *self._names()])

    def to_dict(self) -> dict[str, numpy.ndarray]:
        """The times under "time", and the values of every sensor under its name ("time#2" for one called time); views."""
        return {"time": self.time, **dict(zip(self._names(), self.values))}

    def plot(self, **options: Any) -> Any:
        """Draws all sensors over time with matplotlib; `options` are those of pandas' `plot`."""
        return self.to_pandas().plot(**options)


class Columns(_Notebook):
    """Every sensor by itself: `series` has its times and values, in the order of `sensors`."""

    def __init__(self, tags: Tags, series: list[tuple[numpy.ndarray, numpy.ndarray, int]]):
        self.tags, self.sensors = dict(tags), make_unique(labels(tags))
        self.series = [(time, values) for time, values, _ in series]

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
        tags = {name: pyarrow.array(values, pyarrow.string()) for name, values in self.tags.items()}
        lists = lambda which, type_: pyarrow.ListArray.from_arrays(
            numpy.cumsum([0, *(len(one[which]) for one in self.series)], dtype=numpy.int32),
            pyarrow.array(numpy.concatenate([one[which] for one in self.series]) if self.series else [], type_),
        )
        kind = pyarrow.from_numpy_dtype(self.series[0][1].dtype) if self.series else pyarrow.float64()
        return pyarrow.table({**tags, "time": lists(0, pyarrow.timestamp("ns")), "value": lists(1, kind)})

    def to_pandas(self) -> Any:
        """A long data frame: tags, time and value of every reading."""
        import pandas

        counts = [len(time) for time, _ in self.series]
        tags = {name: numpy.repeat(numpy.array(values, dtype=object), counts) for name, values in self.tags.items()}
        empty = numpy.array([], "datetime64[ns]"), numpy.array([])
        time, values = (numpy.concatenate(parts) for parts in zip(*(self.series or [empty])))
        return pandas.DataFrame({**tags, "time": time, "value": values})


class Values(_Notebook):
    """One value a sensor: `values` and their `time`, in the order of `sensors`."""

    def __init__(self, tags: Tags, time: numpy.ndarray, values: numpy.ndarray):
        self.tags, self.time, self.values = dict(tags), time, values
        self.sensors = make_unique(labels(tags))[: len(values)]

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<tidefall.Values: of {len(self.values)} sensors>"

    def to_dict(self) -> dict[str, float]:
        """The value of every sensor under its name."""
        return dict(zip(self.sensors, self.values.tolist()))

    def to_numpy(self) -> numpy.ndarray:
        """The values."""
        return self.values

    def to_arrow(self) -> pyarrow.Table:
        """A row for each sensor: its tags, the time and the value."""
        tags = {name: pyarrow.array(values, pyarrow.string()) for name, values in self.tags.items()}
        return pyarrow.table({**tags, "time": pyarrow.array(self.time), "value": pyarrow.array(self.values)})

    def to_pandas(self) -> Any:
        """A data frame with a row for each sensor."""
        import pandas

        return pandas.DataFrame({**self.tags, "time": self.time, "value": self.values})


class Rows(_Notebook):
    """The answer to SQL. It is computed while it is read, and read once: iterate over it in batches when it
    is larger than memory, or turn it into one table, which it keeps. Reading it again, or after `close`, raises
    `ClosedError`. Several threads may read it; each gets other batches."""

    def __init__(self, core: _tidefall.Stream):
        self._core, self._table = core, None

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        return pyarrow.schema(self._core)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """The batches of the answer, one after the other."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if not self._core.is_open():
            raise _tidefall.ClosedError(READ)
        while (batch := self._core.next()) is not None:
            yield pyarrow.record_batch(batch)

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

    def to_numpy(self) -> dict[str, numpy.ndarray]:
        """An array for each column."""
        return {name: column.to_numpy() for name, column in zip(self.schema.names, self.to_arrow().columns)}

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each column."""
        return self.to_arrow().to_pydict()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hands the data to any library of Arrow, batch by batch."""
        source = self._core if self._table is None else self._table
        return source.__arrow_c_stream__(requested_schema)

"""Data as people have it, on its way in."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.compute

from . import _tidefall
from .times import nanoseconds

def to_arrow(data: Any) -> Any:
    """Something that offers its rows by Arrow's C interface."""
    try:
        if isinstance(data, Mapping):
            names = _differing(data, map(str, data))
            return pyarrow.table(_to_arrays(data), names=names)
        if _is_of_pandas(data):
            data = _with_index(data)
            named = data.rename(columns=str)
            _differing(data.columns, map(str, named.columns))
            return _from_pandas(_plain_columns(named))
        if isinstance(data, pyarrow.RecordBatch):
            return pyarrow.Table.from_batches([data])
        if hasattr(data, "__arrow_c_stream__"):
            # pyarrow lays out columns without values as the interface wants them; polars does not.
            return pyarrow.RecordBatchReader.from_stream(data)
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:
        raise _tidefall.InvalidError(f"the data cannot be written: {error}") from error
    raise TypeError(f"{type(data).__name__} cannot be written: give a frame, an Arrow table or a dictionary of columns")


def _is_of_pandas(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _differing(labels: Iterable[Any], names: Iterable[str]) -> list[str]:
    """The names that are made of the labels of columns, if no two are the same."""
    label_of: dict[str, Any] = {}
    for label, name in zip(labels, names):
        if name in label_of:
            raise _tidefall.InvalidError(f"the columns {label_of[name]!r} and {label!r} have the same name: rename one of them")
        label_of[name] = label
    return list(label_of)


def _with_index(data: Any) -> Any:
    """A pandas frame whose index has become columns, unless it only counts the rows."""
    import pandas

    index = data.index
    if isinstance(index, pandas.PeriodIndex):
        data = data.set_axis(index.to_timestamp())
        index = data.index
    if index.nlevels == 1 and index.name is None and (index.dtype.kind in "iu" or not len(index)) and index.dtype.kind != "M":
        return data.reset_index(drop=True)
    names = []
    for place, name in enumerate(index.names):
        if name is None and index.get_level_values(place).dtype.kind != "M":
            raise _tidefall.InvalidError("the index has no name: name it, so that it becomes a column, or reset_index(drop=True)")
        names.append("time" if name is None else name)
    return data.rename_axis(index=names).reset_index()


def _plain_columns(data: Any) -> Any:
    """The frame with all of its columns plain."""
    import pandas

    columns = [column for _, column in data.items()]
    written = [_plain(column) for column in columns]
    return pandas.concat(written, axis=1) if any(one is not other for one, other in zip(columns, written)) else data


def _plain(values: Any) -> Any:
    """What pandas has with the beginnings of periods, such as months, in their place, and sparse columns written out."""
    import pandas

    if isinstance(values.dtype, pandas.PeriodDtype):
        return pandas.Series(values).dt.to_timestamp()
    return pandas.Series(values).sparse.to_dense() if isinstance(values.dtype, pandas.SparseDtype) else values


def _from_pandas(data: Any) -> pyarrow.Table:
    table = pyarrow.Table.from_pandas(data, preserve_index=False)
    for place, (_, column) in enumerate(data.items()):
        if column.dtype == object:
            array = table.column(place)
            exact = _to_the_nanosecond(column, array)
            table = table if exact is array else table.set_column(place, table.schema.names[place], exact)
    return table


# Units of lengths of time that numpy has and Arrow has not.
UNITS_OF_NUMPY = ("W", "D", "h", "m", "ps", "fs", "as")
# By these pyarrow takes arrays, also those that nobody can iterate over.
WAYS_OF_ARRAYS = ("__array__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")


def _to_arrays(columns: Mapping[Any, Any]) -> list[Any]:
    """The columns of a dictionary: a single value stands in all rows of the others, as in pandas."""
    arrays = {label: _to_array(values) for label, values in columns.items() if not _is_single(label, values)}
    if columns and not arrays:
        raise _tidefall.InvalidError(f"no column tells how many rows there are: give {next(iter(columns))!r} as a list")
    rows = len(next(iter(arrays.values()), ()))
    return [arrays[label] if label in arrays else _repeated(value, rows) for label, value in columns.items()]


def _is_single(label: Any, values: Any) -> bool:
    """Whether this is one value and no column of them; what would come apart otherwise than it was meant is refused."""
    if isinstance(values, (bytes, bytearray, Mapping, set, frozenset)):
        raise _tidefall.InvalidError(
            f"column {label!r} is of type {type(values).__name__}: give a list, an array or a series, or one value for all rows")
    if isinstance(values, (str, numpy.generic)):
        return True
    return not isinstance(values, Iterable) and not any(hasattr(values, way) for way in WAYS_OF_ARRAYS)


def _repeated(value: Any, rows: int) -> pyarrow.Array:
    # Of its own values numpy makes an array, also where pyarrow does not know the unit.
    column = _to_array(numpy.array([value]) if isinstance(value, numpy.generic) else [value])
    return pyarrow.repeat(column[0], rows)


def _to_array(values: Any) -> Any:
    if _is_of_pandas(values) and hasattr(values, "dtype"):
        values = _plain(values)
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if isinstance(values, numpy.ndarray) and (kind == "M" or (kind == "m" and numpy.datetime_data(values.dtype)[0] in UNITS_OF_NUMPY)):
        return pyarrow.array(nanoseconds(values))
    if isinstance(values, Iterator):
        # It is looked at twice.
        values = list(values)
    is_of_objects = kind == "O" or isinstance(values, Sequence)
    return _to_the_nanosecond(values, _of_objects(values)) if is_of_objects else pyarrow.array(values)


def _of_objects(values: Any) -> Any:
    try:
        return pyarrow.array(values)
    except (TypeError, ValueError):
        # Among others, the NaT and NA of pandas are gaps for those who say that they know them; NaN is one then, too.
        return pyarrow.array(values, from_pandas=True)


def _to_the_nanosecond(values: Iterable[Any], array: Any) -> Any:
    """The array that was made of objects, with what pyarrow leaves out of those of pandas: it takes them for datetimes and
    timedeltas, which count in microseconds."""
    types = pyarrow.types
    if not (types.is_timestamp(array.type) or types.is_duration(array.type)) or array.type.unit != "us":
        return array
    if not any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values):
        return array
    type_ = pyarrow.duration("ns") if types.is_duration(array.type) else pyarrow.timestamp("ns", array.type.tz)
    try:
        return pyarrow.array(values, type_, from_pandas=True)
    except (pyarrow.ArrowInvalid, OverflowError):
        # A value lies beyond what nanoseconds reach, and is refused with its row when it is written.
        return array


# Beyond this a float leaves out whole numbers.
WHOLE_MAX = 1 << 53


def check_time(schema: pyarrow.Schema, time: str | None, tags: Iterable[str] = ()) -> None:
    """Refuses to choose the time where a column called `time` may be one, of numbers or text, and another is of a type of times."""
    types = pyarrow.types
    fields = [field for field in schema if field.name not in tags]
    named = next((field for field in fields if field.name == "time"), None)
    if time is not None or named is None or _is_time(named) or types.is_null(named.type):
        return
    # A database takes a timestamp before a date.
    others = [field for fits in (types.is_timestamp, types.is_date) for field in fields if fits(field.type)]
    if others:
        raise _tidefall.InvalidError(
            f"column 'time' is of type {named.type}, and column {others[0].name!r} of type {others[0].type}: say which is the time, with "
            f"time='time' or time={others[0].name!r}")


def _is_time(field: pyarrow.Field) -> bool:
    return pyarrow.types.is_timestamp(field.type) or pyarrow.types.is_date(field.type)


def time_column(schema: pyarrow.Schema, time: str | None) -> int:
    """Which column is the time: as a database in this process chooses it."""
    check_time(schema, time)
    types = pyarrow.types
    for fits in (
        lambda field: field.name == time,
        lambda field: time is None and field.name == "time" and _is_time(field),
        lambda field: time is None and types.is_timestamp(field.type),
        lambda field: time is None and types.is_date(field.type),
    ):
        if found := [place for place, field in enumerate(schema) if fits(field)]:
            return found[0]
    raise _tidefall.InvalidError(
        "no column is a timestamp or a date; say which is the time" if time is None
        else f"there is no column {time!r}; the columns are {schema.names}")


def to_wide(data: Any, time: str | None, of_one_type: bool) -> tuple[pyarrow.Table, str]:
    """A table of the times and of the columns that have a type, and the name of the time column.

    The values become those of one field. A table that is new takes its type from them: then they are brought to one
    that holds all of them exactly, before anything is written.
    """
    wide = pyarrow.table(to_arrow(data))
    if repeated := [name for name, count in Counter(wide.schema.names).items() if count > 1]:
        raise _tidefall.InvalidError(f"there are several columns {repeated[0]!r}")
    at = time_column(wide.schema, time)
    places = [place for place, field in enumerate(wide.schema) if place == at or not pyarrow.types.is_null(field.type)]
    wide = wide.select(places)
    name = wide.schema.names[places.index(at)]
    return _of_one_type(wide, name) if of_one_type else wide, name


def _of_one_type(wide: pyarrow.Table, time: str) -> pyarrow.Table:
    columns = [field for field in wide.schema if field.name != time]
    # A column without a value says nothing about the others.
    said = [field for field in columns if wide.column(field.name).null_count < len(wide)]
    if len({field.type for field in said}) < 2:
        return wide.select([time, *(field.name for field in said)]) if said else wide
    type_ = _common_type(said)
    if type_ is None:
        return wide.select([time, *(field.name for field in said)])
    cast = {field.name: _cast(field.name, wide.column(field.name), type_) for field in said}
    return pyarrow.table({time: wide.column(time), **cast})


def _kind(type_: pyarrow.DataType) -> str:
    types = pyarrow.types
    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    for name, fits in {
        "float": types.is_floating, "decimal": types.is_decimal, "unsigned": types.is_unsigned_integer,
        "signed": types.is_signed_integer, "time": lambda type_: types.is_timestamp(type_) or types.is_date(type_),
        # These are counts of nanoseconds.
        "count": lambda type_: types.is_time(type_) or types.is_duration(type_), "boolean": types.is_boolean,
    }.items():
        if fits(type_):
            return name
    return "text" if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_) else "other"


def _common_type(fields: list[pyarrow.Field]) -> pyarrow.DataType | None:
    """The type that holds the values of all columns; none where the database makes it of each."""
    kinds = {field.name: _kind(field.type) for field in fields}
    found = set(kinds.values())
    widths = lambda kind: [_width(field.type) for field in fields if kinds[field.name] == kind]
    if found <= {"time"} or found <= {"text"} or found <= {"boolean"} or "other" in found:
        return None
    if found == {"float"} and max(widths("float")) <= 32:
        return pyarrow.float32()
    if found <= {"float", "decimal", "signed", "unsigned"} and found & {"float", "decimal"}:
        return pyarrow.float64()
    if found == {"unsigned"}:
        return {8: pyarrow.uint8(), 16: pyarrow.uint16(), 32: pyarrow.uint32(), 64: pyarrow.uint64()}[max(widths("unsigned"))]
    if found <= {"signed", "unsigned", "count"}:
        needed = max(widths("signed") + [2 * width for width in widths("unsigned")] + [64] * ("count" in found))
        return {8: pyarrow.int8(), 16: pyarrow.int16(), 32: pyarrow.int32()}.get(needed, pyarrow.int64())
    first = fields[0]
    other = next(field for field in fields if kinds[field.name] != kinds[first.name])
    raise _tidefall.InvalidError(
        f"the columns of a wide frame are the values of one field, but {first.name!r} is of type {first.type} and {other.name!r} of "
        f"type {other.type}: write them as two frames, with another `field` each")


def _width(type_: pyarrow.DataType) -> int:
    return _width(type_.value_type) if pyarrow.types.is_dictionary(type_) else type_.bit_width


def _cast(name: str, column: pyarrow.ChunkedArray, type_: pyarrow.DataType) -> pyarrow.ChunkedArray:
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pyarrow.types.is_integer(column.type) and pyarrow.types.is_floating(type_):
        _check_whole(name, column)
    try:
        # A field counts in nanoseconds, whatever the columns count in.
        if pyarrow.types.is_time(column.type):
            column = column.cast(pyarrow.time64("ns"))
        elif pyarrow.types.is_duration(column.type):
            column = column.cast(pyarrow.duration("ns"))
        return column.cast(type_)
    except pyarrow.ArrowInvalid as error:
        raise _tidefall.InvalidError(f"column {name!r}: {error}; give all columns one type") from None


def _check_whole(name: str, column: pyarrow.ChunkedArray) -> None:
    """Integers that become floats must stay what they are."""
    within = pyarrow.compute.and_(
        pyarrow.compute.less_equal(column, pyarrow.scalar(min(WHOLE_MAX, _greatest(column.type)), column.type)),
        pyarrow.compute.greater_equal(column, pyarrow.scalar(max(-WHOLE_MAX, _least(column.type)), column.type)))
    row = pyarrow.compute.index(within, False).as_py()
    if row >= 0:
        raise _tidefall.InvalidError(
            f"column {name!r}, row {row + 1}: {column[row]} is beyond 2^53, where floats leave out whole numbers, and another column holds "
            f"floats: give all columns one type, or write them as two frames, with another `field` each")


def _greatest(type_: pyarrow.DataType) -> int:
    return (1 << (type_.bit_width - pyarrow.types.is_signed_integer(type_))) - 1


def _least(type_: pyarrow.DataType) -> int:
    return -(1 << (type_.bit_width - 1)) if pyarrow.types.is_signed_integer(type_) else 0

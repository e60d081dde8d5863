"""Values for the parameters of SQL, as the database takes them: each with what it is."""

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy

from . import _tidefall
from .times import nanoseconds, required_ns

Parameter = tuple[str, Any]


def parameters(values: Sequence[Any] | None) -> list[Parameter]:
    """The values for `$1`, `$2` and so on, or for one `?` after the other."""
    if values is None:
        return []
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__"):
        raise _tidefall.InvalidError(f"the values for parameters are a list, such as [7, 'a'], and not {type(values).__name__}")
    return [_parameter(number, value) for number, value in enumerate(values, 1)]


def _parameter(number: int, value: Any) -> Parameter:
    if isinstance(value, numpy.generic) and not isinstance(value, (numpy.datetime64, numpy.timedelta64)):
        value = value.item()
    match value:
        case None:
            return "null", None
        case bool():
            return "bool", value
        case int() if -(2**63) <= value < 2**64:
            return ("int", value) if value < 2**63 else ("uint", value)
        case float():
            return "float", value
        case str():
            return "text", value
        case numpy.datetime64() if numpy.isnat(value):
            return "null", None
        case datetime.datetime() if value != value:  # NaT of pandas
            return "null", None
        case numpy.datetime64() | datetime.datetime():
            return "time", required_ns(value)
        case datetime.date():
            return "date", value.isoformat()
        case datetime.timedelta() | numpy.timedelta64():
            return _interval(number, value)
        case decimal.Decimal():
            return _decimal(number, value)
        case list() | tuple() | set() | frozenset() | numpy.ndarray():
            raise _tidefall.InvalidError(f"parameter {number}: a {type(value).__name__} is more than a value; give each of its values alone, and write IN ($1, $2, ...)")
    raise _tidefall.InvalidError(
        f"parameter {number}: {value!r} of {type(value).__name__} is no value of SQL; give a number, a text, a time, a date, a timedelta, a bool or None"
    )


def _interval(number: int, value: datetime.timedelta | numpy.timedelta64) -> Parameter:
    """A length of time, which has days of 24 hours and no months."""
    try:
        length = numpy.array([value.to_timedelta64() if hasattr(value, "to_timedelta64") else numpy.timedelta64(value)])
        if numpy.isnat(length[0]):
            return "null", None
        if length.dtype == numpy.dtype("m8"):
            raise ValueError("it has no unit")
        return "interval", f"{int(nanoseconds(length)[0].astype(numpy.int64))} nanoseconds"
    except (OverflowError, ValueError) as error:
        raise _tidefall.InvalidError(f"parameter {number}: {value!r} is no interval: {error}") from None


def _decimal(number: int, value: decimal.Decimal) -> Parameter:
    """A decimal as a whole number or a DOUBLE, which must have all of its digits."""
    if value.is_nan():  # of both kinds; float() takes one
        return "float", math.nan
    if value.is_finite() and value == value.to_integral_value() and -(2**63) <= value < 2**64:
        return _parameter(number, int(value))
    near = float(value)
    if decimal.Decimal(repr(near)) == value:
        return "float", near
    raise _tidefall.InvalidError(f"parameter {number}: {value!r} has more digits than a DOUBLE; give str(value), and write $1::DECIMAL(38, 10) or the like")


def as_json(values: Sequence[Parameter]) -> list[Any]:
    """The values as a server takes them, in JSON."""
    return [_as_json(kind, value) for kind, value in values]


def _as_json(kind: str, value: Any) -> Any:
    match kind:
        case "time":
            seconds, ns = divmod(value, 1_000_000_000)
            at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
            return {"timestamp": f"{at.isoformat()}.{ns:09}Z"}
        case "date" | "interval":
            return {kind: value}
        case "float":
            return {"double": repr(value)}
    return value

"""Values for the parameters of SQL, as the database takes them: each with what it is."""

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import numpy

from . import _tidefall
from .times import moment

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
            return "time", moment(value)
        case datetime.date():
            return "text", value.isoformat()
        case decimal.Decimal():
            return _decimal(number, value)
    raise _tidefall.InvalidError(f"parameter {number}: {value!r} of {type(value).__name__} is no value of SQL; give a number, a text, a time, a bool or None")


def _decimal(number: int, value: decimal.Decimal) -> Parameter:
    """A decimal as a whole number or a DOUBLE, which must have all of its digits."""
    if value.is_finite() and value == value.to_integral_value() and -(2**63) <= value < 2**64:
        return _parameter(number, int(value))
    near = float(value)
    if value.is_nan() or decimal.Decimal(repr(near)) == value:
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
        case "float":
            return {"double": repr(value)}
    return value

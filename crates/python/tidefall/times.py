"""Times and widths of bins as people write them."""

import datetime
import re

import numpy
import pyarrow

from . import _tidefall

Time = str | int | numpy.integer | datetime.datetime | datetime.date | numpy.datetime64 | pyarrow.TimestampScalar | None
"""A time: text as SQL reads it, a datetime of any kind (without a zone it is UTC), or nanoseconds since 1970. It lies
between 1677-09-21 and 2262-04-11. None leaves a side open."""

# The first and the last nanosecond that there are.
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1

Width = str | datetime.timedelta | numpy.timedelta64
"""How wide a bin is: text such as "15m", "1h" or "1d", as pandas writes it ("15min", "D", "W", "MS"), or a timedelta of
any kind."""

Bins = tuple[int, bool, int]
"""Bins: how wide in nanoseconds, or, if the second is true, in months; and a time at which one begins."""

# Widths that follow the calendar: months, and weeks that begin on Mondays.
CALENDAR = re.compile(r"\s*(\d*)\s*(?:(?P<months>M[SE]?|months?)|(?P<quarters>Q[SE]?|quarters?)|(?P<years>Y[SE]?|y|years?)|(?P<weeks>W|w|weeks?))\s*")
MONTHS = {"months": 1, "quarters": 3, "years": 12}
# A bin of more months would be longer than time itself, from 1677 to 2262.
MONTHS_MAX = 12 * 600
WEEK_NS = 7 * 86_400 * 10**9
# The first Monday of 1970.
MONDAY_NS = 4 * 86_400 * 10**9


def to_ns(time: Time) -> int | None:
    """Nanoseconds since 1970 of a time."""
    return None if time is None else required_ns(time)


def required_ns(time: Time) -> int:
    """Nanoseconds since 1970 of a time that must be there."""
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
    return int(nanoseconds(numpy.array([count]))[0].astype(numpy.int64))


def nanoseconds(times: numpy.ndarray) -> numpy.ndarray:
    """Times, or lengths of time, of any unit in nanoseconds; numpy itself wraps what does not fit."""
    times = times.astype(times.dtype.newbyteorder("="))
    found = times.astype(f"{times.dtype.kind}8[ns]")
    # Of finer units everything fits.
    if numpy.datetime_data(times.dtype)[0] not in ("ps", "fs", "as"):
        wrapped = (found.astype(times.dtype) != times) & ~numpy.isnat(times)
        if wrapped.any():
            raise _outside(times[wrapped][0])
    return found


def _outside(time: object) -> _tidefall.InvalidError:
    if isinstance(time, numpy.timedelta64):
        return _tidefall.InvalidError(f"the length of time {time} is more than 64 bits of nanoseconds")
    return _tidefall.InvalidError(f"the time {time} lies outside of 1677-09-21 .. 2262-04-11")


def bins(every: Width) -> Bins:
    """The bins of such a width."""
    if isinstance(every, str):
        if found := CALENDAR.fullmatch(every):
            count = int(found[1] or 1)
            if count < 1:
                raise _tidefall.InvalidError("bins must be wider than nothing")
            if found.lastgroup == "weeks":
                return _checked(count * WEEK_NS), False, MONDAY_NS
            months = count * MONTHS[found.lastgroup]
            if months > MONTHS_MAX:
                raise _tidefall.InvalidError(f"bins have at most {MONTHS_MAX} months")
            return months, True, 0
        # A unit alone is one of it.
        text = f"1{every}" if every.strip().isalpha() else every
        return _checked(_tidefall.Database.parse_duration(text)), False, 0
    if isinstance(every, (datetime.timedelta, numpy.timedelta64)) and not numpy.isnat(numpy.timedelta64(every)):
        import pandas

        try:
            return _checked(int(pandas.Timedelta(every).as_unit("ns").value)), False, 0
        except (OverflowError, ValueError) as error:
            raise _tidefall.InvalidError(f"bins cannot be {every!r} wide: {error}") from None
    raise _tidefall.InvalidError(f'{every!r} is no width of bins: give text such as "1h", or a timedelta')


def _checked(width_ns: int) -> int:
    if width_ns <= 0:
        raise _tidefall.InvalidError("bins must be wider than nothing")
    if width_ns >= 1 << 63:
        raise _tidefall.InvalidError("bins must not be longer than time itself")
    return width_ns

"""A database behind a server: answers the same calls as the compiled part does for one in this process."""

import http.client
import io
import json
import os
import re
import selectors
import threading
import time as clock
import urllib.parse
from typing import Any

import numpy
import pyarrow
import pyarrow.compute

from . import _tidefall
from .answers import READ, labels, make_unique

Tags = list[tuple[str, list[str | None]]]
Chosen = list[tuple[str, list[str]]]
Range = tuple[int | None, int | None]

# Rows that are sent at once; the body of a request is bounded.
WRITE_ROWS = 1 << 16
ERRORS = {
    "invalid": _tidefall.InvalidError, "not found": _tidefall.NotFoundError, "conflict": _tidefall.ConflictError,
    "corrupt": _tidefall.CorruptError, "io": _tidefall.IoError, "full": _tidefall.FullError, "limit": _tidefall.LimitError,
    "locked": _tidefall.LockedError, "closed": _tidefall.ClosedError, "unsupported": _tidefall.UnsupportedError,
}
# How a server says what `Table.resample` asks for.
AGGREGATES = {
    "mean": "avg({})", "count": "count({})", "std": "stddev({})", "sum": "sum({})", "min": "min({})", "max": "max({})",
    "first": "first_value({0} ORDER BY {1}) FILTER (WHERE {0} IS NOT NULL)", "last": "last_value({0} ORDER BY {1}) FILTER (WHERE {0} IS NOT NULL)",
}


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def moment(time_ns: int) -> str:
    return f"'{numpy.datetime64(time_ns, 'ns')}'"


def keys(tags: Tags) -> list[tuple[str | None, ...]]:
    """The tags of each sensor."""
    return list(zip(*(values for _, values in tags))) if tags else [()]


def may_share_labels(tags: Tags) -> bool:
    """Whether a sensor may have the label of another one: its tags then have a comma, or nothing, in them."""
    return any(not value or (len(tags) > 1 and "," in value) for _, values in tags for value in values)


def as_asked(found: pyarrow.Table, chosen: Chosen) -> pyarrow.Table:
    """Sensors ordered by their tags; when a single tag chooses, in the order of its values."""
    if len(chosen) != 1:
        return found
    tag, values = chosen[0]
    places = {value: place for place, value in reversed(list(enumerate(values)))}
    sensors = found[tag].to_pylist()
    order = sorted(range(len(sensors)), key=lambda row: places[sensors[row]])
    return found.take(pyarrow.array(order, pyarrow.int64()))


# What is kept of a connection that stands idle, in seconds: servers close them after 30, and one that does so at this very
# moment would get a request that it never reads.
IDLE_SECONDS_MAX = 20
# One statement that only reads: it may be sent again when nobody knows whether it arrived.
READING = re.compile(r"\s*(SELECT|SHOW|DESCRIBE|VALUES|FROM)\b[^;]*;?\s*", re.IGNORECASE)
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# A statement that changes a setting and nothing else, and the name of the setting.
SETTING = re.compile(r"\s*(?P<verb>SET|RESET)\s+(?P<name>TIME\s*ZONE\b|[^\s=]+).*", re.IGNORECASE | re.DOTALL)
TIME_ZONE = "datafusion.execution.time_zone"


def settings_of(query: str) -> list[tuple[str, str | None]]:
    """The names of the settings that statements change, if all of them do so, and what sets them; None takes back."""
    statements = [statement.strip() for statement in COMMENT.sub(" ", query).split(";") if statement.strip()]
    found = [SETTING.fullmatch(statement) for statement in statements]
    if not all(found):
        return []
    names = [one["name"].lower() for one in found]
    names = [TIME_ZONE if re.fullmatch(r"time\s*zone", name) else name for name in names]
    return [(name, None if one["verb"].lower() == "reset" else f"{statement}; ") for name, one, statement in zip(names, found, statements)]


def time_column(schema: pyarrow.Schema, time: str | None) -> int:
    """Which column is the time: as a database in this process chooses it."""
    types = pyarrow.types
    is_time = lambda field: types.is_timestamp(field.type) or types.is_date(field.type)
    for fits in (
        lambda field: field.name == time,
        lambda field: time is None and field.name == "time" and is_time(field),
        lambda field: time is None and types.is_timestamp(field.type),
        lambda field: time is None and types.is_date(field.type),
    ):
        if found := [place for place, field in enumerate(schema) if fits(field)]:
            return found[0]
    raise _tidefall.InvalidError("no column is a timestamp or a date; say which is the time" if time is None else f"there is no column {time!r}")


class Server:
    """The connections to a server, one for each thread."""

    def __init__(self, url: str):
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise _tidefall.InvalidError(f"{url!r} is no address of a server, such as http://127.0.0.1:8527")
        self.kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.address, self.local, self.process, self.is_closed = parts.netloc, threading.local(), os.getpid(), False

    def connection(self) -> http.client.HTTPConnection:
        """The connection of this thread if the server still has it, or a new one."""
        if self.process != os.getpid():
            # A process that is forked off does not speak on the connections of the first one.
            self.process, self.local = os.getpid(), threading.local()
        # An answer that is not read to its end keeps its connection; the next request gets another.
        kept, self.local.connection = getattr(self.local, "connection", None), None
        if kept is None:
            return self.kind(self.address)
        if kept.sock is None or clock.monotonic() - self.local.idle_since > IDLE_SECONDS_MAX or is_closed(kept.sock):
            kept.close()
            return self.kind(self.address)
        return kept

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        self.local.connection, self.local.idle_since = connection, clock.monotonic()

    def send(self, target: str, body: bytes, headers: dict[str, str], may_repeat: bool) -> http.client.HTTPResponse:
        """Sends a request; raises when the server refuses it. Sends it again, once, when it does no harm to do it twice and
        the connection was lost before there was an answer."""
        if self.is_closed:
            raise _tidefall.ClosedError("the connection is closed")
        for is_last_try in (not may_repeat, True):
            connection = self.connection()
            try:
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if is_last_try:
                    unknown = "" if may_repeat or isinstance(error, ConnectionRefusedError) else "; nobody knows whether it did what it was asked to"
                    raise _tidefall.IoError(f"the server at {self.address} does not answer: {error}{unknown}") from error
                continue
            if answer.status != 200:
                text = answer.read()
                self.give_back(connection)
                try:
                    error = json.loads(text)["error"]
                    raise ERRORS.get(error["kind"], _tidefall.Error)(error["message"])
                except (ValueError, KeyError, TypeError):
                    raise _tidefall.IoError(f"the server answered {answer.status}: {text[:200]!r}") from None
            answer.give_back = lambda: self.give_back(connection)
            return answer
        raise AssertionError("unreachable")


def is_closed(sock: Any) -> bool:
    """Whether a server has closed a connection on which it owes nothing, or said something unasked, such as that it will."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class Stream:
    """The answer to SQL, read batch by batch; several threads that read it get different ones."""

    def __init__(self, answer: http.client.HTTPResponse, reader: pyarrow.RecordBatchReader):
        self.answer, self.schema, self.lock = answer, reader.schema, threading.RLock()
        # None when it is at its end, closed, or handed over.
        self.reader: pyarrow.RecordBatchReader | None = reader

    def is_open(self) -> bool:
        return self.reader is not None

    def next(self) -> pyarrow.RecordBatch | None:
        with self.lock:
            if self.reader is None:
                return None
            try:
                return self.reader.read_next_batch()
            except StopIteration:
                self.reader = None
                self.answer.read()
                self.answer.give_back()
                return None
            except BaseException as error:
                self.close()
                if isinstance(error, (pyarrow.ArrowException, http.client.HTTPException, OSError)):
                    raise _tidefall.IoError("the server ended the answer early; its log tells why") from error
                raise

    def table(self) -> pyarrow.Table:
        return pyarrow.Table.from_batches(iter(self.next, None), self.schema)

    def close(self) -> None:
        with self.lock:
            if self.reader is not None:
                self.answer.close()
                self.reader = None

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        with self.lock:
            if self.reader is None:
                raise _tidefall.ClosedError(READ)
            rest, self.reader = Stream(self.answer, self.reader), None
        return pyarrow.RecordBatchReader.from_batches(self.schema, iter(rest.next, None)).__arrow_c_stream__(requested_schema)


class Database:
    """The calls of `_tidefall.Database`, as SQL over HTTP."""

    def __init__(self, url: str):
        self.server = Server(url)
        # What was SET goes in front of every question, as the server forgets it with each; the last word on each
        # setting counts.
        self.settings: dict[str, str] = {}
        self.ask("SELECT 1")

    def close(self) -> None:
        self.server.is_closed = True

    def sql(self, query: str) -> Stream:
        answer = self.send("".join(self.settings.values()) + query, READING.fullmatch(query) is not None)
        for name, statement in settings_of(query):
            self.settings.pop(name, None)
            if statement is not None:
                self.settings[name] = statement
        return answer

    def send(self, query: str, may_repeat: bool) -> Stream:
        answer = self.server.send("/api/v1/sql", query.encode(), {"Accept": "application/vnd.apache.arrow.stream"}, may_repeat)
        return Stream(answer, pyarrow.ipc.open_stream(pyarrow.PythonFile(answer, mode="r")))

    def ask(self, query: str) -> pyarrow.Table:
        """The answer to a question that changes nothing."""
        return self.send(query, True).table()

    def tables(self) -> list[str]:
        return self.ask("SHOW TABLES").column(0).to_pylist()

    def schema(self, table: str) -> tuple[str, list[str], list[tuple[str, str]]]:
        found = self.ask(f"DESCRIBE {name(table)}").to_pylist()
        kinds = lambda wanted: [row for row in found if row["kind"] == wanted]
        time = kinds("time")[0]["column"]
        return time, [row["column"] for row in kinds("tag")], [(row["column"], row["type"]) for row in kinds("field")]

    def write(self, table: str, data: Any, time: str | None, tags: list[str]) -> int:
        reader = pyarrow.RecordBatchReader.from_stream(data)
        parameters = {"table": table, "tags": ",".join(tags), **({"time": time} if time else {})}
        rows = 0
        for batch in reader:
            for start in range(0, batch.num_rows, WRITE_ROWS):
                body = io.BytesIO()
                with pyarrow.ipc.new_stream(body, batch.schema) as writer:
                    writer.write_batch(batch.slice(start, WRITE_ROWS))
                # Another client may have written the same readings since, which a second try would take back.
                answer = self.server.send("/api/v1/write?" + urllib.parse.urlencode(parameters), body.getvalue(), {}, False)
                rows += json.loads(answer.read())["rows"]
                answer.give_back()
        return rows

    def write_wide(self, table: str, data: Any, time: str | None, names: tuple[str, str]) -> int:
        wide = pyarrow.RecordBatchReader.from_stream(data).read_all()
        at = time_column(wide.schema, time)
        rows = 0
        for place, field in enumerate(wide.schema):
            if place != at and not pyarrow.types.is_null(field.type):
                sensor = pyarrow.array([field.name]).dictionary_encode().take(pyarrow.array(numpy.zeros(len(wide), dtype=numpy.int32)))
                long = pyarrow.table({"time": wide.column(at), names[0]: sensor, names[1]: wide.column(place)})
                rows += self.write(table, long.filter(pyarrow.compute.is_valid(long.column(2))), "time", [names[0]])
        return rows

    def flush(self) -> None:
        raise _tidefall.UnsupportedError("a server writes to objects by itself")

    def cascade(self, table: str | None, to: str) -> int:
        raise _tidefall.UnsupportedError("a server lets readings fall by itself; see `tidefall serve --cascade-every`")

    def where(self, table: str, chosen: Chosen, time: Range = (None, None)) -> tuple[str, str, list[str]]:
        """A condition, the time column and the tags."""
        time_name, tags, _ = self.schema(table)
        for tag, _ in chosen:
            if tag not in tags:
                raise _tidefall.NotFoundError(f"table {table} has no tag {tag!r}: {', '.join(tags)}")
        parts = [f"{name(tag)} IN ({', '.join(map(literal, values)) or 'NULL'})" for tag, values in chosen]
        parts += [f"{name(time_name)} {op} {moment(bound)}" for op, bound in zip((">=", "<"), time) if bound is not None]
        return " AND ".join(parts) or "true", time_name, tags

    def field(self, table: str, field: str | None) -> str:
        fields = [known for known, _ in self.schema(table)[2]]
        if field is None and len(fields) == 1:
            return fields[0]
        if field not in fields:
            wanted = "several fields; name one" if field is None else f'no field "{field}"'
            raise _tidefall.NotFoundError(f"table {table} has {wanted}: {', '.join(fields)}")
        return field

    def sensors(self, table: str, chosen: Chosen) -> Tags:
        where, _, tags = self.where(table, chosen)
        if not tags:
            return []
        columns = ", ".join(map(name, tags))
        found = self.ask(f"SELECT DISTINCT {columns} FROM {name(table)} WHERE {where} ORDER BY {columns}")
        found = as_asked(found, chosen)
        return [(tag, found[tag].to_pylist()) for tag in tags]

    def frame(self, table: str, chosen: Chosen, field: str | None, time: Range, keep: tuple[bool, float, float] | None) -> tuple[Tags, Any, Any, int]:
        field, tags = self.field(table, field), self.sensors(table, chosen)
        if tags and not tags[0][1]:
            return tags, numpy.array([], "datetime64[ns]"), numpy.empty((0, 0)), 0
        time_name, _, fields = self.schema(table)
        chosen_labels = f"[{', '.join(map(literal, labels(tags)))}]" if tags else "NULL"
        rows, everyone = f"rows({literal(table)}, sensors => {chosen_labels})", tags
        if may_share_labels(tags):
            rows, everyone = f"rows.{name(table)}", self.sensors(table, [])
        names = [label if len(fields) == 1 else f"{label}.{known}" for label in labels(everyone) for known, _ in fields]
        names = make_unique([time_name, *names])[1:]
        place = [known for known, _ in fields].index(field)
        names_of = {sensor: names[first:first + len(fields)] for sensor, first in zip(keys(everyone), range(0, len(names), len(fields)))}
        columns = [name(names_of[sensor][place]) for sensor in keys(tags)]
        conditions = [f"{name(time_name)} {op} {moment(bound)}" for op, bound in zip((">=", "<"), time) if bound is not None]
        if everyone is not tags:
            # Others have rows there, too.
            conditions.append("(" + " OR ".join(f"{name(column)} IS NOT NULL" for sensor in keys(tags) for column in names_of[sensor]) + ")")
        found = self.ask(f"SELECT {name(time_name)}, {', '.join(columns)} FROM {rows} WHERE {' AND '.join(conditions) or 'true'}")
        times, lines = found.column(0).to_numpy(), [found.column(place + 1).to_numpy() for place in range(len(columns))]
        values = numpy.stack(lines) if lines else numpy.empty((0, len(times)))
        if keep is not None:
            is_between, low, high = keep
            kept = (values >= low) & (values <= high) if is_between else (values <= low) | (values >= high)
            values = numpy.where(kept, values, numpy.nan)[:, kept.any(axis=0)]
            times = times[kept.any(axis=0)]
        missing = int(numpy.isnan(values).sum()) if values.dtype.kind == "f" else 0
        return tags, times, values, missing

    def extent(self, table: str, chosen: Chosen, time: Range) -> tuple[int, int, int, int] | None:
        where, time_name, tags = self.where(table, chosen, time)
        groups = f"GROUP BY {', '.join(map(name, tags))}" if tags else ""
        found = self.ask(
            f"SELECT min(first) AS first, max(last) AS last, max(rows) AS rows, count(*) AS sensors FROM (SELECT min({name(time_name)}) AS first, "
            f"max({name(time_name)}) AS last, count(*) AS rows FROM {name(table)} WHERE {where} {groups}) WHERE rows > 0")
        first, last, rows, sensors = (found[column][0] for column in ("first", "last", "rows", "sensors"))
        return (first.value, last.value, rows.as_py(), sensors.as_py()) if first.is_valid else None

    def series(self, table: str, chosen: Chosen, field: str | None, time: Range) -> tuple[Tags, list[tuple[Any, Any, int]]]:
        field, tags = self.field(table, field), self.sensors(table, chosen)
        where, _, names_ = self.where(table, chosen)
        times = "times" if "times" not in (known for known, _ in self.schema(table)[2]) else "times_"
        bounds = "".join(f", {which} => {moment(bound)}" for which, bound in zip(("start", "end"), time) if bound is not None)
        found = self.ask(f"SELECT {', '.join([*map(name, names_), name(times), name(field)])} FROM columns({literal(table)}{bounds}) WHERE {where}")
        rows = zip(*(found[tag].to_pylist() for tag in names_)) if names_ else [()] * len(found)
        lists = {sensor: (found[times][row].values.to_numpy(), found[field][row].values.to_numpy(zero_copy_only=False)) for row, sensor in enumerate(rows)}
        none = numpy.array([], "datetime64[ns]"), numpy.array([])
        return tags, [(times_, values[numpy.newaxis], 0) for times_, values in (lists.get(sensor, none) for sensor in keys(tags))]

    def moments(self, found: pyarrow.Table, tags: list[str], chosen: Chosen) -> tuple[Tags, Any, Any]:
        found = as_asked(found, chosen)
        values = found["value"].to_numpy().astype(float)
        return [(tag, found[tag].to_pylist()) for tag in tags], found["moment"].to_numpy(), values

    def at(self, table: str, chosen: Chosen, field: str | None, time_ns: int) -> tuple[Tags, Any, Any]:
        field = self.field(table, field)
        where, time_name, tags = self.where(table, chosen)
        columns = "".join(f"{name(tag)}, " for tag in tags)
        order = f"ORDER BY {columns[:-2]}" if tags else ""
        return self.moments(self.ask(
            f"SELECT {columns}{name(time_name)} AS moment, {name(field)} AS value FROM {name(table)} "
            f"WHERE {where} AND {name(time_name)} = {moment(time_ns)} AND {name(field)} IS NOT NULL {order}"), tags, chosen)

    def grouped(self, table: str, where: str, tags: list[str], what: str) -> pyarrow.Table:
        columns = ", ".join(map(name, tags))
        group = f"GROUP BY {columns} ORDER BY {columns}" if tags else "HAVING count(*) > 0"
        return self.ask(f"SELECT {columns}{', ' if tags else ''}{what} FROM {name(table)} WHERE {where} {group}")

    def latest(self, table: str, chosen: Chosen, field: str | None) -> tuple[Tags, Any, Any]:
        value = name(self.field(table, field))
        where, time_name, tags = self.where(table, chosen)
        time = name(time_name)
        what = f"max({time}) AS moment, last_value({value} ORDER BY {time}) AS value"
        return self.moments(self.grouped(table, f"{where} AND {value} IS NOT NULL", tags, what), tags, chosen)

    def extremes(self, table: str, chosen: Chosen, field: str | None, time: Range, is_lowest: bool) -> tuple[Tags, Any, Any]:
        value = name(self.field(table, field))
        where, time_name, tags = self.where(table, chosen, time)
        order = f"ORDER BY {value} {'ASC' if is_lowest else 'DESC'}, {name(time_name)}"
        what = f"first_value({name(time_name)} {order}) AS moment, first_value({value} {order}) AS value"
        return self.moments(self.grouped(table, f"{where} AND {value} IS NOT NULL AND {value} = {value} AND NOT isnan({value}::DOUBLE)", tags, what), tags, chosen)

    def resample(self, table: str, chosen: Chosen, field: str | None, time: Range, bin: tuple[int, str]) -> tuple[Tags, Any, Any, int]:
        field, tags = self.field(table, field), self.sensors(table, chosen)
        where, time_name, names_ = self.where(table, chosen, time)
        width_ns, how = bin
        if how not in AGGREGATES:
            raise _tidefall.InvalidError(f"there is no aggregate {how!r}; there are {', '.join(AGGREGATES)}")
        columns = "".join(f"{name(tag)}, " for tag in names_)
        found = self.ask(
            f"SELECT {columns}date_bin(INTERVAL '{width_ns} nanoseconds', {name(time_name)}) AS bin, "
            f"{AGGREGATES[how].format(name(field), name(time_name))} AS value FROM {name(table)} WHERE {where} GROUP BY {columns}bin")
        bins, places = numpy.unique(found["bin"].to_numpy(), return_inverse=True)
        lines = {sensor: line for line, sensor in enumerate(keys(tags))}
        rows = zip(*(found[tag].to_pylist() for tag in names_)) if names_ else [()] * len(found)
        values = numpy.full((len(lines), len(bins)), numpy.nan)
        values[[lines[sensor] for sensor in rows], places] = found["value"].to_numpy().astype(float)
        return tags, bins, values, int(numpy.isnan(values).sum())

"""A database behind a server: answers the same calls as the compiled part does for one in this process."""

import dataclasses
import http.client
import io
import json
import os
import re
import selectors
import socket
import threading
import time as clock
import urllib.parse
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.compute

from . import _tidefall
from .answers import READ, labels, make_unique, plain
from .parameters import Parameter, as_json
from .settings import settings_of
from .times import TIME_MAX, Bins

Tags = list[tuple[str, list[str | None]]]
Chosen = list[tuple[str, list[str]]]
Range = tuple[int | None, int | None]

# Rows that are sent at once, and about how many bytes: the body of a request is bounded.
WRITE_ROWS = 1 << 16
WRITE_BYTES = 8 << 20
# The layer `rows` has a column for each field of each sensor, also if only one field is read, and less than this in all.
LAYER_COLUMNS_MAX = 20_000
# How many of them a statement names, times how many there are: the time to plan it grows with that. A second or so for this; a
# thousand of a thousand took 7 s, and with 2,000 it is more than the minute that a server gives it.
LAYER_NAMES_TIMES_COLUMNS_MAX = 400 * 400
# The types of numbers as numpy calls them.
NUMBERS = {
    "TINYINT": "i1", "SMALLINT": "i2", "INTEGER": "i4", "BIGINT": "i8", "TINYINT UNSIGNED": "u1", "SMALLINT UNSIGNED": "u2",
    "INTEGER UNSIGNED": "u4", "BIGINT UNSIGNED": "u8", "REAL": "f4", "DOUBLE": "f8",
}
# The other types.
OTHERS = {"BOOLEAN": "bool", "TEXT": "object", "TIMESTAMP": "datetime64[ns]"}
ERRORS = {
    "invalid": _tidefall.InvalidError, "not found": _tidefall.NotFoundError, "conflict": _tidefall.ConflictError,
    "corrupt": _tidefall.CorruptError, "io": _tidefall.IoError, "full": _tidefall.FullError, "limit": _tidefall.LimitError,
    "locked": _tidefall.LockedError, "closed": _tidefall.ClosedError, "unsupported": _tidefall.UnsupportedError,
}
# The sum of a field of 64 bits, which wraps around: how often, is told by its average, which is one of floats.
AROUND = "1.8446744073709552e19::DOUBLE"
SUM_UNWRAPPED = f"sum({{0}})::DOUBLE + round((avg({{0}}) * count({{0}}) - sum({{0}})::DOUBLE) / {AROUND}) * {AROUND}"
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


def within(time_name: str, time: Range) -> str:
    """A condition on the time."""
    return " AND ".join(f"{name(time_name)} {op} {moment(bound)}" for op, bound in zip((">=", "<"), time) if bound is not None) or "true"


def parts(batches: pyarrow.RecordBatchReader) -> Iterator[pyarrow.RecordBatch]:
    """Rows in pieces that a request may have; one without rows if there are none, as it says which columns there are."""
    is_empty = True
    for batch in batches:
        rows = max(min(WRITE_ROWS, batch.num_rows * WRITE_BYTES // max(batch.nbytes, 1)), 1)
        for start in range(0, batch.num_rows, rows):
            is_empty = False
            yield batch.slice(start, rows)
    if is_empty:
        yield pyarrow.RecordBatch.from_pylist([], batches.schema)


def together(tables: list[pyarrow.Table]) -> pyarrow.Table:
    """One table, in as few batches as may be."""
    return pyarrow.concat_tables(tables).unify_dictionaries().combine_chunks()


def free(wanted: str, taken: Iterable[str]) -> str:
    """A name that is not taken: the wanted one, or with as many _ behind it as that needs."""
    taken = set(taken)
    while wanted in taken:
        wanted += "_"
    return wanted


def keys(tags: Tags) -> list[tuple[str | None, ...]]:
    """The tags of each sensor."""
    return list(zip(*(values for _, values in tags))) if tags else [()]


def sensors_in(found: pyarrow.Table, tags: list[str]) -> list[tuple[str | None, ...]]:
    """The sensor of each row of an answer whose first columns are the tags."""
    return list(zip(*(column.to_pylist() for column in found.columns[:len(tags)]))) if tags else [()] * len(found)


def label_tells(tags: Tags) -> bool:
    """Whether labels tell which sensors are meant: one with a comma, or nothing, in its tags may have that of another one,
    and one with % stands for all that are like it."""
    return not any(not value or "%" in value or (len(tags) > 1 and "," in value) for _, values in tags for value in values)


def layer_answers(tags: Tags, fields: int) -> bool:
    """Whether the layer `rows` can be asked for all of these sensors."""
    sensors = len(keys(tags))
    columns = sensors * fields
    return label_tells(tags) and columns < LAYER_COLUMNS_MAX and sensors * columns <= LAYER_NAMES_TIMES_COLUMNS_MAX


def as_asked(found: pyarrow.Table, tags: list[str], chosen: Chosen) -> pyarrow.Table:
    """Sensors, whose tags are the first columns, ordered by these; when a single tag chooses, in the order of its values."""
    if len(chosen) != 1:
        return found
    tag, values = chosen[0]
    places = {value: place for place, value in reversed(list(enumerate(values)))}
    sensors = found.column(tags.index(tag)).to_pylist()
    order = sorted(range(len(sensors)), key=lambda row: places[sensors[row]])
    return found.take(pyarrow.array(order, pyarrow.int64()))


# What is kept of a connection that stands idle, in seconds: servers close them after 30, and one that does so at this very
# moment would get a request that it never reads.
IDLE_SECONDS_MAX = 20
# After how many seconds of silence the system asks whether the other side is there, how many seconds later it asks again, and how
# many questions without an answer end the connection: a minute in all. The first has another name in macOS.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# One statement that only reads: it may be sent again when nobody knows whether it arrived.
READING = re.compile(r"\s*(SELECT|SHOW|DESCRIBE|VALUES|FROM)\b[^;]*;?\s*", re.IGNORECASE)


@dataclasses.dataclass
class Asked:
    """A question to a table: the names of its columns, and the field that is read."""

    table: str
    time: str
    tags: list[str]
    fields: list[tuple[str, str]]
    field: str

    @property
    def dtype(self) -> numpy.dtype | None:
        """What numbers numpy has for the field; none if it holds others."""
        found = NUMBERS.get(dict(self.fields)[self.field])
        return numpy.dtype(found) if found else None

    def numeric(self) -> "Asked":
        """Itself, if the field holds numbers."""
        if self.dtype is None:
            raise _tidefall.UnsupportedError(f'field "{self.field}" holds no numbers; read it with SQL')
        return self

    def free(self, wanted: str) -> str:
        """A name that no column of the table has; the layer `columns` names its times so."""
        return free(wanted, [self.time, *self.tags, *(known for known, _ in self.fields)])

    def aggregate(self, how: str) -> str:
        """How a server says an aggregate of the field, as a float."""
        form = SUM_UNWRAPPED if how == "sum" and self.dtype in ("i8", "u8") else AGGREGATES[how]
        return form.format(name(self.field), name(self.time))

    def empty(self) -> numpy.ndarray:
        """No values, of the type of the field."""
        return numpy.array([], self.dtype or OTHERS[dict(self.fields)[self.field]])


def numbers(columns: list[pyarrow.ChunkedArray], dtype: numpy.dtype) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Columns as lines of numbers, and where there are any."""
    is_there = numpy.stack([numpy.asarray(column.is_valid()) for column in columns])
    none = pyarrow.scalar(0, pyarrow.from_numpy_dtype(dtype))
    filled = lambda column: pyarrow.compute.fill_null(column.cast(none.type), none).to_numpy()
    return numpy.stack([filled(column) for column in columns]), is_there


def with_gaps(values: numpy.ndarray, is_there: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """The values with NaN where there are none, and how many these are; integers become floats then."""
    missing = int(values.size - numpy.count_nonzero(is_there))
    if missing:
        values = values if values.dtype.kind == "f" else values.astype(float)
        values[~is_there] = numpy.nan
    return values, missing


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

    def close(self) -> None:
        """Lets go of the connection of this thread; those of others are let go of with their threads."""
        self.is_closed = True
        if self.process == os.getpid() and (kept := getattr(self.local, "connection", None)) is not None:
            kept.close()

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        self.local.connection, self.local.idle_since = connection, clock.monotonic()

    def send(self, target: str, body: bytes, headers: dict[str, str], may_repeat: bool) -> "Answer":
        """Sends a request; raises when the server refuses it. Sends it again, once, when it does no harm to do it twice and
        the connection was lost before there was an answer."""
        if self.is_closed:
            raise _tidefall.ClosedError("the connection is closed")
        for is_last_try in (not may_repeat, True):
            connection = self.connection()
            try:
                if connection.sock is None:
                    connection.connect()
                    keep_alive(connection.sock)
                connection.request("POST", target, body, headers)
                answer = Answer(self, connection, connection.getresponse())
                refusal = answer.read() if answer.response.status != 200 else None
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if is_last_try:
                    unknown = "" if may_repeat or isinstance(error, ConnectionRefusedError) else "; nobody knows whether it did what it was asked to"
                    raise _tidefall.IoError(f"the server at {self.address} does not answer: {error}{unknown}") from error
                continue
            if refusal is not None:
                try:
                    error = json.loads(refusal)["error"]
                    raise ERRORS.get(error["kind"], _tidefall.Error)(error["message"])
                except (ValueError, KeyError, TypeError):
                    raise _tidefall.IoError(f"the server answered {answer.response.status}: {refusal[:200]!r}") from None
            return answer
        raise AssertionError("unreachable")


class Answer:
    """What a server sends, and the connection on which it comes. One that is not read to its end ends the connection when it is
    closed or let go of: the server would wait for its reader, with all that the query holds."""

    def __init__(self, server: Server, connection: http.client.HTTPConnection, response: http.client.HTTPResponse):
        self.server, self.connection, self.response = server, connection, response
        # It must not know the answer, which would live on with it; neither does the connection.
        self.end = weakref.finalize(self, end, connection, response)

    def read(self) -> bytes:
        """The rest of the answer, after which the connection takes the next request."""
        rest = self.response.read()
        if self.end.detach() is not None:
            self.server.give_back(self.connection)
        return rest

    def close(self) -> None:
        self.end()


def end(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
    # The response has a connection that will not be used again for itself.
    response.close()
    connection.close()


def keep_alive(sock: Any) -> None:
    """Lets the system ask a server that is silent whether it is still there: the answer to a query may take any time, and nothing else
    would tell that the machine or the way to it is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        # Not every platform has all of them.
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def is_closed(sock: Any) -> bool:
    """Whether a server has closed a connection on which it owes nothing, or said something unasked, such as that it will."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class Stream:
    """The answer to SQL, read batch by batch; several threads that read it get different ones."""

    def __init__(self, answer: Answer, reader: pyarrow.RecordBatchReader):
        self.schema, self.lock = reader.schema, threading.RLock()
        # None when it is at its end, closed, or handed over.
        self.rest: tuple[Answer, pyarrow.RecordBatchReader] | None = answer, reader

    def is_open(self) -> bool:
        return self.rest is not None

    def next(self) -> pyarrow.RecordBatch | None:
        with self.lock:
            if self.rest is None:
                return None
            answer, reader = self.rest
            try:
                try:
                    return reader.read_next_batch()
                except StopIteration:
                    answer.read()
                    self.rest = None
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
            if self.rest is not None:
                (answer, _), self.rest = self.rest, None
                answer.close()

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        with self.lock:
            if self.rest is None:
                raise _tidefall.ClosedError(READ)
            rest, self.rest = Stream(*self.rest), None
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
        self.server.close()

    def sql(self, query: str, parameters: list[Parameter]) -> Stream:
        answer = self.send("".join(self.settings.values()) + query, READING.fullmatch(query) is not None, parameters)
        for name, statement in settings_of(query):
            self.settings.pop(name, None)
            if statement is not None:
                self.settings[name] = statement
        return answer

    def send(self, query: str, may_repeat: bool, parameters: Sequence[Parameter] = ()) -> Stream:
        body, headers = query, {"Accept": "application/vnd.apache.arrow.stream"}
        if parameters:
            body = json.dumps({"sql": query, "parameters": as_json(parameters)}, ensure_ascii=False)
            headers["Content-Type"] = "application/json"
        answer = self.server.send("/api/v1/sql", body.encode(), headers, may_repeat)
        try:
            return Stream(answer, pyarrow.ipc.open_stream(pyarrow.PythonFile(answer.response, mode="r")))
        except BaseException:
            answer.close()
            raise

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

    def write(self, table: str, data: Any, time: str | None, tags: list[str], existing: str) -> tuple[int, int | None]:
        if "" in tags:
            raise _tidefall.InvalidError("a tag needs a name, this one is empty")
        if strange := [tag for tag in tags if "," in tag]:
            raise _tidefall.UnsupportedError(
                f"the tag {strange[0]!r} cannot be written through a server, which is told their names with commas in between: "
                "rename the column, or write its rows with INSERT")
        parameters = {"table": table, "tags": ",".join(tags), "existing": existing, **({} if time is None else {"time": time})}
        target = "/api/v1/write?" + urllib.parse.urlencode(parameters)
        rows, replaced = 0, 0
        pieces = parts(pyarrow.RecordBatchReader.from_stream(data))
        # Rows are named as they are counted in the piece.
        behind = lambda error: str(error) if rows == 0 else f"of the rows from {rows + 1} on: {error}"
        while True:
            try:
                part = next(pieces, None)
            except pyarrow.ArrowException as error:
                raise _tidefall.InvalidError(behind(error)) from error
            if part is None:
                return rows, replaced if existing != "replace" else None
            body = io.BytesIO()
            with pyarrow.ipc.new_stream(body, part.schema) as writer:
                writer.write_batch(part)
            try:
                # Another client may have written the same readings since, which a second try would take back.
                answer = self.server.send(target, body.getvalue(), {}, False)
            except _tidefall.Error as error:
                raise type(error)(behind(error)) from None
            written = json.loads(answer.read())
            rows += written["rows"]
            # A server of an earlier version does not count.
            more = written.get("replaced")
            replaced = None if replaced is None or more is None else replaced + more

    def write_wide(self, table: str, data: pyarrow.Table, time: str, names: tuple[str, str], existing: str) -> tuple[int, int | None]:
        rows, replaced = 0, 0
        for long in self.long(data, time, names):
            more, more_replaced = self.write(table, long, long.column_names[0], [names[0]], existing)
            rows += more
            replaced = None if replaced is None or more_replaced is None else replaced + more_replaced
        return rows, replaced if existing != "replace" else None

    def long(self, wide: pyarrow.Table, time: str, names: tuple[str, str]) -> Iterator[pyarrow.Table]:
        """The readings of a wide frame, sensor by sensor; short columns of one type together."""
        waiting: list[pyarrow.Table] = []
        rows = 0
        for field in wide.schema:
            column = wide.column(field.name)
            if field.name == time or column.null_count == len(column):
                continue
            if pyarrow.types.is_string_view(column.type):
                # There is no way to filter it.
                column = column.cast(pyarrow.large_string())
            sensor = pyarrow.DictionaryArray.from_arrays(numpy.zeros(len(wide), dtype=numpy.int32), [field.name])
            sensor = pyarrow.chunked_array([sensor])
            long = pyarrow.table([wide.column(time), sensor, column], names=[free("time", names), *names])
            long = long.filter(pyarrow.compute.is_valid(column))
            if waiting and (waiting[0].schema != long.schema or rows + len(long) > WRITE_ROWS):
                yield together(waiting)
                waiting, rows = [], 0
            waiting.append(long)
            rows += len(long)
        if waiting:
            yield together(waiting)

    def refresh(self) -> bool:
        # A server answers with what there is now.
        return False

    def flush(self) -> None:
        raise _tidefall.UnsupportedError("a server writes to objects by itself")

    def cascade(self, table: str | None, to: str) -> int:
        raise _tidefall.UnsupportedError("a server lets readings fall by itself; see `tidefall serve --cascade-every`")

    def asked(self, table: str, field: str | None) -> Asked:
        time, tags, fields = self.schema(table)
        known = [name for name, _ in fields]
        if field is None and len(known) == 1:
            field = known[0]
        if field not in known:
            if field is None:
                raise _tidefall.InvalidError(f"table {table} has several fields; name one: {', '.join(known)}")
            raise _tidefall.NotFoundError(f'table {table} has no field "{field}": {", ".join(known)}')
        return Asked(table, time, tags, fields, field)

    def chosen(self, table: str, tags: list[str], chosen: Chosen) -> str:
        """A condition on the tags."""
        for tag, _ in chosen:
            if tag not in tags:
                raise _tidefall.NotFoundError(f'table {table} has no tag "{tag}"; its tags are {", ".join(tags)}')
        return " AND ".join(f"{name(tag)} IN ({', '.join(map(literal, values)) or 'NULL'})" for tag, values in chosen) or "true"

    def where(self, asked: Asked, chosen: Chosen, time: Range) -> str:
        """A condition on tags and times."""
        return f"{self.chosen(asked.table, asked.tags, chosen)} AND {within(asked.time, time)}"

    def sensors(self, table: str, chosen: Chosen) -> Tags:
        return self.sensors_of(table, self.schema(table)[1], chosen)

    def sensors_of(self, table: str, tags: list[str], chosen: Chosen) -> Tags:
        where = self.chosen(table, tags, chosen)
        if not tags:
            return []
        columns = ", ".join(map(name, tags))
        found = self.ask(f"SELECT DISTINCT {columns} FROM {name(table)} WHERE {where} ORDER BY {columns}")
        found = as_asked(found, tags, chosen)
        return [(tag, column.to_pylist()) for tag, column in zip(tags, found.columns)]

    def frame(self, table: str, chosen: Chosen, field: str | None, time: Range, keep: tuple[bool, float, float] | None) -> tuple[Tags, Any, Any, int]:
        asked = self.asked(table, field)
        tags = self.sensors_of(table, asked.tags, chosen)
        if keep is not None:
            asked.numeric()
        if tags and not tags[0][1]:
            return tags, numpy.array([], "datetime64[ns]"), asked.empty().reshape(0, 0), 0
        times, columns = self.side_by_side(asked, tags, time) if layer_answers(tags, len(asked.fields)) else self.laid_together(asked, tags, chosen, time)
        if asked.dtype is None:
            return tags, times, numpy.stack([plain(column) for column in columns]), sum(column.null_count for column in columns)
        values, is_there = numbers(columns, asked.dtype)
        if keep is not None:
            is_between, low, high = keep
            as_doubles = values.astype(float)
            is_there &= (as_doubles >= low) & (as_doubles <= high) if is_between else (as_doubles <= low) | (as_doubles >= high)
            has_any = is_there.any(axis=0)
            times, values, is_there = times[has_any], values[:, has_any], is_there[:, has_any]
        values, missing = with_gaps(values, is_there)
        return tags, times, values, missing

    def side_by_side(self, asked: Asked, tags: Tags, time: Range) -> tuple[numpy.ndarray, list[pyarrow.ChunkedArray]]:
        """The times at which one of the sensors has a reading, and a column of the field for each of them."""
        chosen = f"[{', '.join(map(literal, labels(tags)))}]" if tags else "NULL"
        fields = [known for known, _ in asked.fields]
        names = [label if len(fields) == 1 else f"{label}.{known}" for label in labels(tags) for known in fields]
        names = make_unique([asked.time, *names])
        mine = names[1 + fields.index(asked.field)::len(fields)]
        found = self.ask(
            f"SELECT {', '.join(map(name, [asked.time, *mine]))} FROM rows({literal(asked.table)}, sensors => {chosen}) "
            f"WHERE {within(asked.time, time)}")
        return plain(found.column(0)), found.columns[1:]

    def laid_together(self, asked: Asked, tags: Tags, chosen: Chosen, time: Range) -> tuple[numpy.ndarray, list[pyarrow.ChunkedArray]]:
        """The same for sensors for which the layer `rows` cannot be asked."""
        found = self.lists(asked, chosen, time)
        none = pyarrow.array([], pyarrow.timestamp("ns")), pyarrow.array(asked.empty())
        lists = [found.get(sensor, none) for sensor in keys(tags)]
        moments = [plain(times) for times, _ in lists]
        times = numpy.unique(numpy.concatenate(moments))
        columns = []
        for mine, (_, values) in zip(moments, lists):
            rows = numpy.full(len(times), -1)
            rows[numpy.searchsorted(times, mine)] = numpy.arange(len(mine))
            columns.append(pyarrow.chunked_array([values.take(pyarrow.array(rows, mask=rows < 0))]))
        return times, columns

    def lists(self, asked: Asked, chosen: Chosen, time: Range) -> dict[tuple[str | None, ...], tuple[pyarrow.Array, pyarrow.Array]]:
        """The times and values of each sensor that has any."""
        bounds = "".join(f", {which} => {moment(bound)}" for which, bound in zip(("start", "end"), time) if bound is not None)
        found = self.ask(
            f"SELECT {', '.join(map(name, [*asked.tags, asked.free('times'), asked.field]))} FROM columns({literal(asked.table)}{bounds}) "
            f"WHERE {self.chosen(asked.table, asked.tags, chosen)}")
        times, values = found.columns[-2:]
        return {sensor: (times[row].values, values[row].values) for row, sensor in enumerate(sensors_in(found, asked.tags))}

    def extent(self, table: str, chosen: Chosen, time: Range) -> tuple[int, int, int, int] | None:
        time_name, tags, _ = self.schema(table)
        where = f"{self.chosen(table, tags, chosen)} AND {within(time_name, time)}"
        groups = f"GROUP BY {', '.join(map(name, tags))}" if tags else ""
        found = self.ask(
            f"SELECT min(first), max(last), max(rows), count(*) FROM (SELECT min({name(time_name)}), max({name(time_name)}), count(*) "
            f"FROM {name(table)} WHERE {where} {groups}) AS found(first, last, rows) WHERE rows > 0")
        first, last, rows, sensors = (column[0] for column in found.columns)
        return (first.value, last.value, rows.as_py(), sensors.as_py()) if first.is_valid else None

    def frame_end(self, table: str, chosen: Chosen, time: Range, rows_max: int) -> int:
        time_name, tags, _ = self.schema(table)
        found = self.ask(
            f"SELECT max(time), count(*) FROM (SELECT {name(time_name)} FROM {name(table)} WHERE {self.chosen(table, tags, chosen)} "
            f"AND {within(time_name, time)} GROUP BY {name(time_name)} ORDER BY {name(time_name)} LIMIT {rows_max + 1}) AS found(time)")
        last, rows = (column[0] for column in found.columns)
        return last.value - 1 if rows.as_py() > rows_max else TIME_MAX if time[1] is None else time[1] - 1

    def series(self, table: str, chosen: Chosen, field: str | None, time: Range) -> tuple[Tags, list[tuple[Any, Any]]]:
        asked = self.asked(table, field)
        tags, lists = self.sensors_of(table, asked.tags, chosen), self.lists(asked, chosen, time)
        none = numpy.array([], "datetime64[ns]"), asked.empty()
        return tags, [self.line(asked, *lists[sensor]) if sensor in lists else none for sensor in keys(tags)]

    def line(self, asked: Asked, times: pyarrow.Array, values: pyarrow.Array) -> tuple[Any, Any]:
        if asked.dtype is None or (values.null_count and asked.dtype in ("i8", "u8")):
            return plain(times), values
        values, _ = with_gaps(*numbers([pyarrow.chunked_array([values])], asked.dtype))
        return plain(times), values

    def points(self, asked: Asked, chosen: Chosen, found: pyarrow.Table) -> tuple[Tags, Any, Any]:
        *tags, times, values = as_asked(found, asked.tags, chosen).columns
        values = plain(values)
        values = values.astype(asked.dtype) if asked.dtype is not None else values
        return [(tag, column.to_pylist()) for tag, column in zip(asked.tags, tags)], plain(times), values

    def at(self, table: str, chosen: Chosen, field: str | None, time_ns: int) -> tuple[Tags, Any, Any]:
        asked = self.asked(table, field)
        columns = "".join(f"{name(tag)}, " for tag in asked.tags)
        order = f"ORDER BY {columns[:-2]}" if columns else ""
        return self.points(asked, chosen, self.ask(
            f"SELECT {columns}{name(asked.time)}, {name(asked.field)} FROM {name(table)} "
            f"WHERE {self.where(asked, chosen, (None, None))} AND {name(asked.time)} = {moment(time_ns)} AND {name(asked.field)} IS NOT NULL {order}"))

    def grouped(self, asked: Asked, where: str, what: str) -> pyarrow.Table:
        columns = ", ".join(map(name, asked.tags))
        group = f"GROUP BY {columns} ORDER BY {columns}" if columns else "HAVING count(*) > 0"
        return self.ask(f"SELECT {columns}{', ' if columns else ''}{what} FROM {name(asked.table)} WHERE {where} {group}")

    def latest(self, table: str, chosen: Chosen, field: str | None) -> tuple[Tags, Any, Any]:
        asked = self.asked(table, field)
        value, time = name(asked.field), name(asked.time)
        what = f"max({time}), last_value({value} ORDER BY {time})"
        where = f"{self.where(asked, chosen, (None, None))} AND {value} IS NOT NULL"
        return self.points(asked, chosen, self.grouped(asked, where, what))

    def extremes(self, table: str, chosen: Chosen, field: str | None, time: Range, is_lowest: bool) -> tuple[Tags, Any, Any]:
        asked = self.asked(table, field)
        where = self.where(asked, chosen, time)
        value, time_name = name(asked.numeric().field), name(asked.time)
        order = f"ORDER BY {value} {'ASC' if is_lowest else 'DESC'}, {time_name}"
        what = f"first_value({time_name} {order}), first_value({value} {order})"
        where += f" AND {value} IS NOT NULL AND NOT isnan({value}::DOUBLE)"
        return self.points(asked, chosen, self.grouped(asked, where, what))

    def resample(self, table: str, chosen: Chosen, field: str | None, time: Range, question: tuple[Bins, list[str]]) -> tuple[Tags, Any, Any, int]:
        asked = self.asked(table, field)
        tags = self.sensors_of(table, asked.tags, chosen)
        (width, is_months, origin_ns), what = question
        if unknown := [how for how in what if how not in AGGREGATES]:
            raise _tidefall.InvalidError(f'there is no aggregate "{unknown[0]}"; there are {", ".join(AGGREGATES)}')
        if any(how != "count" for how in what):
            asked.numeric()
        columns = "".join(f"{name(tag)}, " for tag in asked.tags)
        interval = f"INTERVAL '{width} {'months' if is_months else 'nanoseconds'}'"
        bin_ = name(asked.free("bin"))
        found = self.ask(
            f"SELECT {columns}date_bin({interval}, {name(asked.time)}, {moment(origin_ns)}) AS {bin_}, {', '.join(map(asked.aggregate, what))} "
            f"FROM {name(table)} WHERE {self.where(asked, chosen, time)} GROUP BY {columns}{bin_}")
        lines = {sensor: line for line, sensor in enumerate(keys(tags))}
        sensors = numpy.array([lines.get(sensor, -1) for sensor in sensors_in(found, asked.tags)], int)
        # Sensors may come between two questions.
        found, sensors = found.filter(pyarrow.array(sensors >= 0)), sensors[sensors >= 0]
        times, *columns = found.columns[len(asked.tags):]
        bins, places = numpy.unique(plain(times), return_inverse=True)
        values = numpy.full((len(lines), len(what), len(bins)), numpy.nan)
        for place, column in enumerate(columns):
            values[sensors, place, places] = plain(column).astype(float)
        return tags, bins, values.reshape(len(lines) * len(what), len(bins)), int(numpy.isnan(values).sum())

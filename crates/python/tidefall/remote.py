"""A database behind a server: answers the same calls as the compiled part does for one in this process."""

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
from .answers import READ, plain
from .parameters import Parameter, as_json
from .settings import settings_of
from .times import Bins

Tags = list[tuple[str, list[str | None]]]
Chosen = list[tuple[str, list[str]]]
Range = tuple[int | None, int | None]

# Rows that are sent at once, and about how many bytes: the body of a request is bounded.
WRITE_ROWS = 1 << 16
WRITE_BYTES = 8 << 20
ERRORS = {
    "invalid": _tidefall.InvalidError, "not found": _tidefall.NotFoundError, "conflict": _tidefall.ConflictError,
    "corrupt": _tidefall.CorruptError, "io": _tidefall.IoError, "full": _tidefall.FullError, "limit": _tidefall.LimitError,
    "locked": _tidefall.LockedError, "closed": _tidefall.ClosedError, "unsupported": _tidefall.UnsupportedError,
}


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


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


# What is kept of a connection that stands idle, in seconds: servers close them after 30, and one that does so at this very
# moment would get a request that it never reads.
IDLE_SECONDS_MAX = 20
# After how many seconds of silence the system asks whether the other side is there, how many seconds later it asks again, and how
# many questions without an answer end the connection: a minute in all. The first has another name in macOS.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# One statement that only reads: it may be sent again when nobody knows whether it arrived.
READING = re.compile(r"\s*(SELECT|SHOW|DESCRIBE|VALUES|FROM)\b[^;]*;?\s*", re.IGNORECASE)


def numbers(values: pyarrow.Array) -> numpy.ndarray:
    """Values that may be written to."""
    return numpy.array(plain(values))


def block(found: pyarrow.Table, lines_of_each: int = 1) -> tuple[Tags, numpy.ndarray, numpy.ndarray, int]:
    """The tags, times and values of a frame with so many lines of each sensor. Each row is a piece: the next times, and the values line behind line."""
    *tags, times, values, floats, missing = found.columns
    tags = [(tag, column[0].as_py()) for tag, column in zip(found.column_names, tags)]
    instants = [plain(piece.values) for piece in times]
    # Pieces of integers with gaps are floats.
    pieces = [numbers((of_type if of_type.is_valid else of_floats).values) for of_type, of_floats in zip(values, floats)]
    # A table without tags has one sensor.
    lines = (len(tags[0][1]) if tags else 1) * lines_of_each
    pieces = [piece.reshape(lines, len(at)) for piece, at in zip(pieces, instants)]
    return tags, numpy.concatenate(instants), numpy.concatenate(pieces, axis=1), sum(missing.to_pylist())


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
                    raise _tidefall.IoError("the server ended the answer early: for an error, which its log tells, or because it was not read for a while and others needed the memory") from error
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
    """The calls of `_tidefall.Database` over HTTP."""

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
        return self.receive("/api/v1/sql", body, headers, may_repeat)

    def receive(self, target: str, body: str, headers: dict[str, str], may_repeat: bool) -> Stream:
        answer = self.server.send(target, body.encode(), headers, may_repeat)
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
        kinds = lambda *wanted: [row for row in found if row["kind"] in wanted]
        # Of records every column is a field, some of which are dimensions.
        time = next((row["column"] for row in kinds("time")), "time")
        fields = [(row["column"], row["type"]) for row in kinds("field", "dimension")]
        return time, [row["column"] for row in kinds("tag")], fields

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
        raise _tidefall.UnsupportedError("a server moves readings by itself; see `tidefall serve --cascade-every`")

    def frames(self, table: str, what: Any, chosen: Chosen = [], field: str | None = None, time: Range = (None, None)) -> pyarrow.Table:
        """The answer to a question that data frames ask, which the server answers as this process would."""
        question = {"table": table, "sensors": chosen, "field": field, "start": time[0], "end": time[1], "ask": what}
        headers = {"Accept": "application/vnd.apache.arrow.stream", "Content-Type": "application/json"}
        return self.receive("/api/v1/frames", json.dumps(question, ensure_ascii=False), headers, True).table()

    def sensors(self, table: str, chosen: Chosen) -> Tags:
        found = self.frames(table, "sensors", chosen)
        return [(tag, column.to_pylist()) for tag, column in zip(found.column_names, found.columns)]

    def frame(self, table: str, chosen: Chosen, field: str | None, time: Range, keep: tuple[bool, float, float] | None) -> tuple[Tags, Any, Any, int]:
        # As text a server reads all digits of a number, and those that JSON does not know.
        bound = lambda number: repr(float(number))
        kept = keep and {"between": keep[0], "low": bound(keep[1]), "high": bound(keep[2])}
        return block(self.frames(table, {"frame": kept}, chosen, field, time))

    def extent(self, table: str, chosen: Chosen, time: Range) -> tuple[int, int, int, int] | None:
        found = self.frames(table, "extent", chosen, time=time)
        return tuple(column.cast(pyarrow.int64())[0].as_py() for column in found.columns) if len(found) else None

    def frame_end(self, table: str, chosen: Chosen, time: Range, rows_max: int) -> int:
        return self.frames(table, {"frame_end": rows_max}, chosen, time=time).column(0)[0].value

    def series(self, table: str, chosen: Chosen, field: str | None, time: Range) -> tuple[Tags, list[tuple[Any, Any]]]:
        found = self.frames(table, "series", chosen, field, time)
        *tags, times, values, floats, _ = found.columns
        lists = [(of_type if of_type.is_valid else of_floats).values for of_type, of_floats in zip(values, floats)]
        # Integers with gaps that floats cannot hold stay a column.
        lines = [line if line.null_count else numbers(line) for line in lists]
        tags = [(tag, column.to_pylist()) for tag, column in zip(found.column_names, tags)]
        return tags, list(zip((plain(at.values) for at in times), lines))

    def points(self, found: pyarrow.Table) -> tuple[Tags, Any, Any]:
        *tags, times, values = found.combine_chunks().columns
        tags = [(tag, column.to_pylist()) for tag, column in zip(found.column_names, tags)]
        return tags, plain(times), numbers(values)

    def at(self, table: str, chosen: Chosen, field: str | None, time_ns: int) -> tuple[Tags, Any, Any]:
        return self.points(self.frames(table, {"at": time_ns}, chosen, field))

    def latest(self, table: str, chosen: Chosen, field: str | None) -> tuple[Tags, Any, Any]:
        return self.points(self.frames(table, "latest", chosen, field))

    def extremes(self, table: str, chosen: Chosen, field: str | None, time: Range, is_lowest: bool) -> tuple[Tags, Any, Any]:
        return self.points(self.frames(table, "lowest" if is_lowest else "highest", chosen, field, time))

    def resample(self, table: str, chosen: Chosen, field: str | None, time: Range, question: tuple[Bins, list[str]]) -> tuple[Tags, Any, Any, int]:
        (width, is_months, origin_ns), what = question
        asked = {"resample": [{"width": width, "months": is_months, "origin": origin_ns}, what]}
        return block(self.frames(table, asked, chosen, field, time), len(what))

"""A database behind a server: answers the same calls as the compiled part does for one in this process."""

import http.client
import io
import json
import threading
import urllib.parse
from typing import Any

import numpy
import pyarrow

from . import _tidefall

Tags = list[tuple[str, list[str | None]]]
Chosen = list[tuple[str, list[str]]]
Range = tuple[int | None, int | None]

# Rows that are sent at once; the body of a request is bounded.
WRITE_ROWS = 1 << 16
ERRORS = {
    "invalid": _tidefall.InvalidError, "not found": _tidefall.NotFoundError, "conflict": _tidefall.ConflictError,
    "corrupt": _tidefall.CorruptError, "io": _tidefall.IoError, "limit": _tidefall.LimitError,
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


class Server:
    """The connections to a server, one for each thread."""

    def __init__(self, url: str):
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise _tidefall.InvalidError(f"{url!r} is no address of a server, such as http://127.0.0.1:8527")
        self.kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.address, self.local, self.is_closed = parts.netloc, threading.local(), False

    def send(self, target: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Sends a request; raises when the server refuses it."""
        if self.is_closed:
            raise _tidefall.ClosedError("the connection is closed")
        for is_last_try in (False, True):
            connection = getattr(self.local, "connection", None) or self.kind(self.address)
            # An answer that is not read to its end keeps its connection; the next request gets another.
            self.local.connection = None
            try:
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                # A server may have closed a connection that stood idle; what asks only may be asked again.
                if is_last_try or "/write" in target:
                    raise _tidefall.IoError(f"the server at {self.address} does not answer: {error}") from error
                continue
            if answer.status != 200:
                text = answer.read()
                self.local.connection = connection
                try:
                    error = json.loads(text)["error"]
                    raise ERRORS.get(error["kind"], _tidefall.Error)(error["message"])
                except (ValueError, KeyError, TypeError):
                    raise _tidefall.IoError(f"the server answered {answer.status}: {text[:200]!r}") from None
            answer.give_back = lambda: setattr(self.local, "connection", connection)
            return answer
        raise AssertionError("unreachable")


class Stream:
    """The answer to SQL, read batch by batch."""

    def __init__(self, answer: http.client.HTTPResponse):
        self.answer = answer
        self.reader = pyarrow.ipc.open_stream(pyarrow.PythonFile(answer, mode="r"))

    def next(self) -> pyarrow.RecordBatch | None:
        if self.reader is None:
            return None
        try:
            return self.reader.read_next_batch()
        except StopIteration:
            self.answer.read()
            self.answer.give_back()
            self.reader = None
            return None
        except (pyarrow.ArrowException, http.client.HTTPException, OSError) as error:
            raise _tidefall.IoError(f"the answer was cut off, because the query failed on the server: {error}") from error

    def table(self) -> pyarrow.Table:
        schema, batches = self.reader.schema, []
        while (batch := self.next()) is not None:
            batches.append(batch)
        return pyarrow.Table.from_batches(batches, schema)

    def close(self) -> None:
        self.answer.close()
        self.reader = None

    def __arrow_c_schema__(self) -> Any:
        return self.reader.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader.__arrow_c_stream__(requested_schema)


class Database:
    """The calls of `_tidefall.Database`, as SQL over HTTP."""

    def __init__(self, url: str):
        self.server = Server(url)
        self.sql("SELECT 1").table()

    def close(self) -> None:
        self.server.is_closed = True

    def sql(self, query: str) -> Stream:
        return Stream(self.server.send("/api/v1/sql", query.encode(), {"Accept": "application/vnd.apache.arrow.stream"}))

    def ask(self, query: str) -> pyarrow.Table:
        return self.sql(query).table()

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
                answer = self.server.send("/api/v1/write?" + urllib.parse.urlencode(parameters), body.getvalue(), {})
                rows += json.loads(answer.read())["rows"]
                answer.give_back()
        return rows

    def write_wide(self, table: str, data: Any, time: str | None, names: tuple[str, str]) -> int:
        wide = pyarrow.RecordBatchReader.from_stream(data).read_all()
        is_time = [pyarrow.types.is_temporal(field.type) if time is None else field.name == time for field in wide.schema]
        if True not in is_time:
            raise _tidefall.InvalidError("the frame has no column of times")
        at = is_time.index(True)
        rows = 0
        for place, field in enumerate(wide.schema):
            if place != at:
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
        return [(tag, found[tag].to_pylist()) for tag in tags]

    def frame(self, table: str, chosen: Chosen, field: str | None, time: Range, keep: tuple[bool, float, float] | None) -> tuple[Tags, Any, Any, int]:
        field, tags = self.field(table, field), self.sensors(table, chosen)
        _, time_name, _ = self.where(table, [])
        labels = [",".join(value or "" for value in sensor) for sensor in zip(*(values for _, values in tags))] or ["value"]
        is_only = len(self.schema(table)[2]) == 1
        columns = [name(label if is_only else f"{label}.{field}") for label in labels]
        where = " AND ".join(f"{name(time_name)} {op} {moment(bound)}" for op, bound in zip((">=", "<"), time) if bound is not None) or "true"
        chosen_labels = f"[{', '.join(map(literal, labels))}]" if tags else "NULL"
        if tags and not tags[0][1]:
            return tags, numpy.array([], "datetime64[ns]"), numpy.empty((0, 0)), 0
        found = self.ask(f"SELECT {name(time_name)}, {', '.join(columns)} FROM rows({literal(table)}, sensors => {chosen_labels}) WHERE {where}")
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
        where, _, names_ = self.where(table, chosen, time)
        times = "times" if "times" not in (known for known, _ in self.schema(table)[2]) else "times_"
        found = self.ask(f"SELECT {', '.join([*map(name, names_), name(times), name(field)])} FROM columns.{name(table)} WHERE {where}")
        keys = list(zip(*(found[tag].to_pylist() for tag in names_))) if names_ else [()] * len(found)
        lists = {key: (found[times][row].values.to_numpy(), found[field][row].values.to_numpy(zero_copy_only=False)) for row, key in enumerate(keys)}
        none = numpy.array([], "datetime64[ns]"), numpy.array([])
        sensors = list(zip(*(values for _, values in tags))) if tags else [()]
        return tags, [(times_, values[numpy.newaxis], 0) for times_, values in (lists.get(sensor, none) for sensor in sensors)]

    def moments(self, found: pyarrow.Table, tags: list[str]) -> tuple[Tags, Any, Any]:
        values = found["value"].to_numpy().astype(float)
        return [(tag, found[tag].to_pylist()) for tag in tags], found["moment"].to_numpy(), values

    def at(self, table: str, chosen: Chosen, field: str | None, time_ns: int) -> tuple[Tags, Any, Any]:
        field = self.field(table, field)
        where, time_name, tags = self.where(table, chosen)
        columns = "".join(f"{name(tag)}, " for tag in tags)
        order = f"ORDER BY {columns[:-2]}" if tags else ""
        return self.moments(self.ask(
            f"SELECT {columns}{name(time_name)} AS moment, {name(field)} AS value FROM {name(table)} "
            f"WHERE {where} AND {name(time_name)} = {moment(time_ns)} AND {name(field)} IS NOT NULL {order}"), tags)

    def grouped(self, table: str, where: str, tags: list[str], what: str) -> pyarrow.Table:
        columns = ", ".join(map(name, tags))
        group = f"GROUP BY {columns} ORDER BY {columns}" if tags else "HAVING count(*) > 0"
        return self.ask(f"SELECT {columns}{', ' if tags else ''}{what} FROM {name(table)} WHERE {where} {group}")

    def latest(self, table: str, chosen: Chosen, field: str | None) -> tuple[Tags, Any, Any]:
        value = name(self.field(table, field))
        where, time_name, tags = self.where(table, chosen)
        time = name(time_name)
        what = f"max({time}) AS moment, last_value({value} ORDER BY {time}) AS value"
        return self.moments(self.grouped(table, f"{where} AND {value} IS NOT NULL", tags, what), tags)

    def extremes(self, table: str, chosen: Chosen, field: str | None, time: Range, is_lowest: bool) -> tuple[Tags, Any, Any]:
        value = name(self.field(table, field))
        where, time_name, tags = self.where(table, chosen, time)
        order = f"ORDER BY {value} {'ASC' if is_lowest else 'DESC'}, {name(time_name)}"
        what = f"first_value({name(time_name)} {order}) AS moment, first_value({value} {order}) AS value"
        return self.moments(self.grouped(table, f"{where} AND {value} IS NOT NULL AND {value} = {value} AND NOT isnan({value}::DOUBLE)", tags, what), tags)

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
        sensors = {sensor: line for line, sensor in enumerate(zip(*(values for _, values in tags)))} or {(): 0}
        keys = zip(*(found[tag].to_pylist() for tag in names_)) if names_ else [()] * len(found)
        values = numpy.full((len(sensors), len(bins)), numpy.nan)
        values[[sensors[key] for key in keys], places] = found["value"].to_numpy().astype(float)
        return tags, bins, values, int(numpy.isnan(values).sum())

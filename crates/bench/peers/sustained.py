"""The load of `tidefall-bench sustained` into other databases, beside a reader who asks all the while.

    python sustained.py --system duckdb|chdb|questdb [--sensors N] [--writers N] [--late PART] [--seconds N] [--timeline FILE]

Each writer sends 100,000 readings of its share of the sensors after the other, as fast as they are taken, each piece durable before the
next; a part of the rows is late by up to a week. Once a second the count and the greatest value of everything, and the last five minutes of
one sensor are asked for. Prints lines of JSON, and writes a line of figures for each second, as the program of Tidefall does. The others
keep rows of one sensor and time apart, and are spared the look for them.
"""

import argparse
import io
import pathlib
import shutil
import statistics
import threading
import time
import urllib.parse
import urllib.request

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

import common
import http_write

PIECE_ROWS = 100_000
RATE = 100_000  # readings that all sensors make together in a second of the day that they tell of
VALUES = 16 * PIECE_ROWS + 7
SPAN_SECONDS = 60
MINUTES_NS = 5 * 60 * 1_000_000_000
DAY_NS = 86_400_000_000_000
COLUMNS = "second,rows_per_s,wait_p50_ms,wait_p99_ms,wait_max_ms,run_files,objects,live_mib,disk_mib,resident_mib,count_max_ms,last_minutes_ms"


class System:
    """What is the same in most of them."""

    process = "self"  # whose memory counts
    may_be_behind = False  # whether questions are answered without rows that have been acknowledged

    def parts(self, _connection):
        return 0


class DuckDB(System):
    name = "DuckDB"

    def __init__(self, folder, options):
        import duckdb
        self.version, self.settings = common.version("duckdb"), f"threads {options.threads}, not sorted, a transaction with fsync for each piece"
        self.database = duckdb.connect(f"{folder}/db", config={"threads": options.threads})
        self.database.execute("CREATE TABLE readings (time TIMESTAMP_NS, sensor VARCHAR, value DOUBLE)")

    def connection(self):
        return self.database.cursor()

    def write(self, connection, piece):
        connection.register("piece", piece)
        connection.execute("INSERT INTO readings SELECT time, sensor, value FROM piece")

    def ask(self, connection, sql):
        return connection.sql(sql).to_arrow_table()

    count_max = "SELECT count(*), max(value) FROM readings"

    def last_minutes(self, sensor, first_ns, last_ns):
        return f"SELECT time, value FROM readings WHERE sensor = '{sensor}' AND time BETWEEN make_timestamp_ns({first_ns}) AND make_timestamp_ns({last_ns}) ORDER BY time"

    def close(self):
        self.database.close()


class ClickHouse(System):
    name = "ClickHouse (chdb)"

    def __init__(self, folder, options):
        from chdb import session
        if options.writers > 1:
            raise SystemExit("the sessions of chdb serve one writer")
        self.version = common.version("chdb")
        self.settings = "MergeTree by sensor, time; DoubleDelta and ALP, both with ZSTD(1); fsync_after_insert"
        self.turn = threading.Lock()
        self.server = session.Session(folder)
        self.server.query("SET enable_alp_codec = 1")
        self.server.query("CREATE DATABASE IF NOT EXISTS d")
        columns = "time DateTime64(9) CODEC(DoubleDelta, ZSTD(1)), sensor LowCardinality(String) CODEC(ZSTD(1)), value Float64 CODEC(ALP, ZSTD(1))"
        self.server.query(f"CREATE TABLE d.readings ({columns}) ENGINE = MergeTree ORDER BY (sensor, time) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")

    def connection(self):
        return self.server

    def write(self, connection, piece):
        piece = piece.set_column(1, "sensor", piece["sensor"].cast(pyarrow.string()))  # noqa: F841, found by name
        with self.turn:
            connection.query("INSERT INTO d.readings SELECT time, sensor, value FROM Python(piece)")

    def ask(self, connection, sql):
        with self.turn:
            answer = connection.query(sql, "ArrowStream").bytes()
        return pyarrow.ipc.open_stream(answer).read_all() if answer else None

    count_max = "SELECT count(*), max(value) FROM d.readings"

    def last_minutes(self, sensor, first_ns, last_ns):
        return f"SELECT time, value FROM d.readings WHERE sensor = '{sensor}' AND time BETWEEN fromUnixTimestamp64Nano({first_ns}) AND fromUnixTimestamp64Nano({last_ns}) ORDER BY time"

    def parts(self, connection):
        return first_of(self.ask(connection, "SELECT count() FROM system.parts WHERE database = 'd' AND active"))

    def close(self):
        self.server.close()


class QuestDB(System):
    name = "QuestDB"
    may_be_behind = True

    def __init__(self, folder, options):
        self.version = http_write.QUESTDB
        self.settings = "server on this machine, partitions of hours, line protocol by its own client, commits synced; questions see what has been applied"
        self.server = http_write.start_questdb(folder, "cairo.commit.mode=sync\n")
        self.process = self.server.process.pid
        self.read("CREATE TABLE readings (time TIMESTAMP, sensor SYMBOL CAPACITY 131072, value DOUBLE) TIMESTAMP(time) PARTITION BY HOUR WAL", "/exec")

    def connection(self):
        from questdb.ingress import Sender
        sender = Sender.from_conf(f"{self.server.url.replace('://', '::addr=')};auto_flush=off;request_timeout=600000;retry_timeout=0;")
        sender.establish()
        return sender

    def write(self, connection, piece):
        connection.dataframe(piece.to_pandas(), table_name="readings", symbols=["sensor"], at="time")
        connection.flush()

    def read(self, sql, path="/exp", **parameters):
        question = urllib.parse.urlencode({"query": sql, **parameters})
        with urllib.request.urlopen(f"{self.server.url}{path}?{question}", timeout=600) as answer:
            return answer.read()

    def ask(self, _connection, sql):
        return pyarrow.parquet.read_table(io.BytesIO(self.read(sql, fmt="parquet")))

    count_max = "SELECT count(), max(value) FROM readings"

    def last_minutes(self, sensor, first_ns, last_ns):
        return f"SELECT time, value FROM readings WHERE sensor = '{sensor}' AND time BETWEEN {first_ns // 1000} AND {last_ns // 1000}"

    def close(self):
        self.server.stop()


def first_of(table):
    return int(table.column(0)[0].as_py())


class Load:
    """What the writers and the watcher share."""

    def __init__(self, system, options):
        self.system, self.options = system, options
        self.start_ns = time.time_ns() // DAY_NS * DAY_NS
        self.step_ns = options.sensors * 1_000_000_000 // RATE
        self.values = numpy.random.default_rng(42).integers(200_000, 400_000, VALUES) / 1e3
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.sent = self.acknowledged = self.steps = 0
        self.waits = []
        self.failures = []

    def write(self, writer):
        try:
            self.write_all(writer, self.system.connection())
        except Exception as error:  # The figures of a writer that failed are not those of the load.
            self.failures.append(error)
            self.is_over.set()

    def write_all(self, writer, connection):
        options = self.options
        share = options.sensors // options.writers
        names = pyarrow.array([f"s{writer * share + number:03}" for number in range(share)])
        steps = max(PIECE_ROWS // share, 1)
        rows = steps * share
        keys = pyarrow.array(numpy.tile(numpy.arange(share, dtype=numpy.int32), steps))
        sensor = pyarrow.DictionaryArray.from_arrays(keys, names)
        random = numpy.random.default_rng(43 + writer)
        first = 0
        while not self.is_over.is_set():
            times = numpy.repeat(self.start_ns + (first + numpy.arange(steps)) * self.step_ns, share)
            late = random.integers(0, rows, int(rows * options.late))
            back = random.integers(0, 7 * DAY_NS // self.step_ns, len(late)) * self.step_ns
            times[late] -= back + random.integers(1, max(self.step_ns, 2), len(late))
            offset = random.integers(0, VALUES - rows)
            piece = pyarrow.table({"time": pyarrow.array(times, pyarrow.timestamp("ns")), "sensor": sensor, "value": self.values[offset:offset + rows]})
            with self.lock:
                self.sent += rows
            start = time.perf_counter()
            self.system.write(connection, piece)
            waited = (time.perf_counter() - start) * 1e3
            first += steps
            with self.lock:
                self.acknowledged += rows
                self.waits.append(waited)
                if writer == 0:
                    self.steps = first

    def watch(self, folder, timeline):
        connection, random = self.system.connection(), numpy.random.default_rng(42)
        seconds, start = [], time.perf_counter()
        before, before_at = 0, 0.0
        for second in range(1, self.options.seconds + 1):
            if self.is_over.wait(max(start + second - time.perf_counter(), 0)):
                break
            at = time.perf_counter() - start
            with self.lock:
                written, waits, self.waits = self.acknowledged, self.waits, []
            if not written:
                continue
            seen = {"second": at, "rows_per_s": (written - before) / (at - before_at), "waits": waits}
            before, before_at = written, at
            seen["disk_mib"] = common.folder_bytes(folder) / 2**20
            seen["resident_mib"] = resident_mib(self.system.process)
            seen["run_files"] = self.system.parts(connection)
            seen["count_max_ms"], answer = timed(lambda: self.system.ask(connection, self.system.count_max))
            counted = first_of(answer)
            behind = max(written - counted, 0)
            assert counted <= self.sent and (not behind or self.system.may_be_behind), f"{counted} rows were counted; {written} to {self.sent} were there"
            seen["rows_behind"] = behind
            last_ns = self.start_ns + self.steps * self.step_ns
            sensor = f"s{random.integers(0, self.options.sensors):03}"
            question = self.system.last_minutes(sensor, last_ns - MINUTES_NS, last_ns)
            seen["last_minutes_ms"], _ = timed(lambda: self.system.ask(connection, question))
            seconds.append(seen)
            if timeline:
                timeline.write(line_of(seen) + "\n")
        return seconds


def timed(action):
    start = time.perf_counter()
    answer = action()
    return (time.perf_counter() - start) * 1e3, answer


def resident_mib(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def quantile(values, part):
    values = sorted(values)
    return values[int((len(values) - 1) * part)] if values else 0.0


def line_of(seen):
    waits = seen["waits"]
    return (
        f"{seen['second']:.1f},{seen['rows_per_s']:.0f},{quantile(waits, 0.5):.2f},{quantile(waits, 0.99):.2f},{quantile(waits, 1):.2f},"
        f"{seen['run_files']},{seen['run_files']},{seen['disk_mib']:.1f},{seen['disk_mib']:.1f},{seen['resident_mib']:.1f},"
        f"{seen['count_max_ms']:.2f},{seen['last_minutes_ms']:.3f}"
    )


def report(system, options, seconds):
    late = f", {options.late * 100:.1f} % late" if options.late else ""
    settings = f"{options.sensors} sensors, {options.writers} writers{late}, {options.seconds} s; {system.settings}"
    say = lambda bench, unit, figure, **more: common.report(f"sustained load, {bench}", system.name, system.version, settings, [figure], unit, **more)
    rates, waits = [seen["rows_per_s"] for seen in seconds], [wait for seen in seconds for wait in seen["waits"]]
    span = max(min(SPAN_SECONDS, len(seconds) // 2), 1)
    first, last = statistics.mean(rates[:span]), statistics.mean(rates[-span:])
    say("readings taken", "readings/s", statistics.mean(rates), first_span=first, last_span=last, ratio=last / first)
    say("wait of a write", "ms", quantile(waits, 0.5), p99=quantile(waits, 0.99), most=max(waits))
    for bench, column in [("count and max of everything", "count_max_ms"), ("last five minutes of a sensor", "last_minutes_ms")]:
        say(bench, "ms", statistics.median(seen[column] for seen in seconds), most=max(seen[column] for seen in seconds))
    for bench, unit, column in [("run files", "files", "run_files"), ("bytes on the disk", "MiB", "disk_mib"), ("resident memory", "MiB", "resident_mib")]:
        say(bench, unit, max(seen[column] for seen in seconds))
    if system.may_be_behind:
        say("rows acknowledged that a question does not see", "rows", max(seen["rows_behind"] for seen in seconds))


SYSTEMS = {"duckdb": DuckDB, "chdb": ClickHouse, "questdb": QuestDB}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--timeline", help="where a line of figures is written for each second, as CSV")
    options = parser.parse_args()
    folder = pathlib.Path(options.work) / "sustained"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    system = SYSTEMS[options.system](str(folder), options)
    try:
        measure(system, folder, options)
    finally:
        system.close()
    shutil.rmtree(folder)


def measure(system, folder, options):
    load = Load(system, options)
    writers = [threading.Thread(target=load.write, args=(writer,)) for writer in range(options.writers)]
    timeline = open(options.timeline, "w", buffering=1) if options.timeline else None
    if timeline:
        timeline.write(COLUMNS + "\n")
    for writer in writers:
        writer.start()
    try:
        seconds = load.watch(folder, timeline)
    finally:
        load.is_over.set()
        for writer in writers:
            writer.join()
    if load.failures:
        raise load.failures[0]
    report(system, options, seconds)


if __name__ == "__main__":
    main()

"""The twelve queries of the papers' sensor workload, from Python, each answered in its final form.

    python queries.py --system tidefall|duckdb|chdb|arcticdb|influxdb|questdb [--sensors 100] [--days 366]
                      [--model long|short|kv|mixed] [--only q1,q8] [--cold | --both]

Ten instances of every query, with other sensors and other dates, the same for all systems. Every answer is
compared with one computed from the raw values before anything is timed. Warm: each instance is run once to
warm up and then `--runs` times (fewer when one takes seconds), of which the median counts. Cold: the caches of
the operating system are dropped and the database is opened again before each single run (needs root). Prints
milliseconds, a line of JSON for each query: the median over the instances, with the spread between their
quartiles. Of a workload of one day only the queries of a day are asked, of a month those of a month as well.

Q1, Q2, Q3: one sensor for a day, a month, a year. Q4, Q5, Q6: ten neighbours. Q7: ten of all. Q8: every sensor
at one minute, as a dictionary. Q9, Q10: hourly means of a year of one and of twenty sensors. Q11: the smallest
value of a day with its time. Q12: the readings of a year that are two deviations or more off the mean.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy
import pandas

import common

NS_PER_HOUR = 3_600_000_000_000
NS_PER_DAY = 24 * NS_PER_HOUR
QUERIES = [f"q{number}" for number in range(1, 13)]
OF_A_DAY = ["q1", "q4", "q8", "q11"]
OF_A_MONTH = ["q2", "q5"]


def possible(days):
    """The queries that can be asked of so many days."""
    return [query for query in QUERIES if days >= (1 if query in OF_A_DAY else 30 if query in OF_A_MONTH else 31)]


class Workload:
    """The readings: a line for each minute, a column for each sensor."""

    def __init__(self, sensors, days, seed):
        random = numpy.random.default_rng(seed)
        self.sensors, self.days = sensors, days
        self.names = common.sensor_names(sensors)
        self.mu, self.sigma = random.uniform(200, 400, sensors), random.uniform(50, 70, sensors)
        minutes = days * common.MINUTES_PER_DAY
        self.time = common.START_NS + numpy.arange(minutes, dtype=numpy.int64) * common.NS_PER_MINUTE
        self.values = numpy.empty((sensors, minutes))
        for sensor, line in enumerate(self.values):
            numpy.round(random.normal(self.mu[sensor], self.sigma[sensor], minutes), 3, out=line)

    def frame(self):
        """A wide data frame, whose columns are contiguous."""
        return pandas.DataFrame(self.values.T, index=pandas.DatetimeIndex(self.time, name="time"), columns=self.names, copy=False)

    def instances(self, query, count):
        """What to ask: sensors, a period, and the bounds of ordinary values."""
        random = numpy.random.default_rng(int(query[1:]))
        length = 1 if query in OF_A_DAY else 30 if query in OF_A_MONTH else self.days
        wanted = {"q4": 10, "q5": 10, "q6": 10, "q7": 10, "q10": 20}.get(query, 1)
        wanted = min(wanted, self.sensors)
        for _ in range(count):
            if query == "q7":
                sensors = range(0, self.sensors, max(1, self.sensors // 10))
            elif query == "q8":
                sensors = range(self.sensors)
            else:
                first = int(random.integers(0, self.sensors - wanted + 1))
                sensors = range(first, first + wanted)
            day = int(random.integers(0, self.days - length + 1))
            minutes = day * common.MINUTES_PER_DAY, (day + length) * common.MINUTES_PER_DAY
            if query == "q8":
                minute = int(random.integers(*minutes))
                minutes = minute, minute + 1
            yield Instance(self, query, list(sensors), *minutes)


class Instance:
    """One question, and its right answer."""

    def __init__(self, workload, query, sensors, first, last):
        self.workload, self.query, self.sensors, self.span = workload, query, sensors, slice(first, last)
        self.names = [workload.names[sensor] for sensor in sensors]
        self.start, self.end = int(workload.time[first]), int(workload.time[last - 1]) + common.NS_PER_MINUTE
        self.low = float(workload.mu[sensors[0]] - 2 * workload.sigma[sensors[0]])
        self.high = float(workload.mu[sensors[0]] + 2 * workload.sigma[sensors[0]])

    def check(self, answer):
        """Raises unless the answer is right."""
        values, time = self.workload.values[self.sensors, self.span], self.workload.time[self.span]
        if self.query == "q8":
            assert answer == dict(zip(self.names, values[:, 0].tolist())), "q8: another dictionary"
            return
        if self.query == "q11":
            place = int(values[0].argmin())
            found_time, sensor, value = answer
            assert (pandas.Timestamp(found_time).value, sensor, value) == (int(time[place]), self.names[0], float(values[0, place])), f"q11: {answer}"
            return
        if self.query in ("q9", "q10"):
            values = values.reshape(len(values), -1, 60).mean(axis=2)
            time = time[::60]
        elif self.query == "q12":
            is_wanted = (values[0] <= self.low) | (values[0] >= self.high)
            values, time = values[:, is_wanted], time[is_wanted]
        assert isinstance(answer, pandas.DataFrame) and isinstance(answer.index, pandas.DatetimeIndex), f"{self.query}: no frame"
        numpy.testing.assert_array_equal(answer.index.as_unit("ns").asi8, time, err_msg=self.query)
        assert [str(name) for name in answer.columns] == self.names, f"{self.query}: {list(answer.columns)}"
        numpy.testing.assert_allclose(answer.to_numpy(), values.T, rtol=1e-12 if self.query in ("q9", "q10") else 0, err_msg=self.query)


def side_by_side(times, columns, names):
    """A frame of columns that were fetched one below the other, each over the same times."""
    values = numpy.asarray(columns).reshape(len(names), -1)
    index = pandas.DatetimeIndex(numpy.asarray(times)[: values.shape[1]])
    return pandas.DataFrame(values.T, index=index, columns=names, copy=False)


class Tidefall:
    """In this process; one call of the package for each query."""

    title, settings = "Tidefall", "in process"

    def __init__(self, folder, options):
        self.path, self.options = f"{folder}/db", options
        self.open()

    def open(self):
        import tidefall
        self.db = tidefall.open(self.path, memory_mib=self.options.memory)
        if "readings" in self.db.tables():
            self.table = self.db.table("readings")

    def close(self):
        self.db.close()

    def version(self):
        import tidefall
        return tidefall.__version__

    def load(self, workload):
        frame, model = workload.frame(), self.options.model
        if model != "long":
            # The readings are old; these ages keep them where they are put.
            self.db.sql("CREATE TABLE readings (time TIMESTAMP, sensor TEXT, value DOUBLE, PRIMARY KEY (sensor, time)) "
                        "WITH (cascade = 'kv 20000d, short 30000d, long')").to_dict()
        month, day = (max(workload.days - days, 0) * common.MINUTES_PER_DAY for days in (30, 1))
        if model in ("long", "mixed"):
            self.db.write_wide("readings", frame if model == "long" else frame.iloc[:month])
            self.db.cascade("readings", to="long")
        if model in ("short", "mixed"):
            self.arrive(workload, slice(month if model == "mixed" else 0, day if model == "mixed" else None))
            self.db.cascade("readings", to="short")
            # What was replaced stays for a minute, unless the database is closed; it is not what readings take.
            self.db.close()
            self.open()
        if model in ("kv", "mixed"):
            self.arrive(workload, slice(day if model == "mixed" else 0, None))
        self.table = self.db.table("readings")

    def arrive(self, workload, span):
        """Writes rows in the order in which they arrive, an hour at a time."""
        import pyarrow
        minutes = workload.time[span]
        for start in range(0, len(minutes), 60):
            hour = minutes[start : start + 60]
            keys = numpy.tile(numpy.arange(workload.sensors, dtype=numpy.int32), len(hour))
            values = workload.values[:, span][:, start : start + len(hour)].T.ravel()
            self.db.write("readings", pyarrow.table({
                "time": pyarrow.array(numpy.repeat(hour, workload.sensors), pyarrow.timestamp("ns")),
                "sensor": pyarrow.DictionaryArray.from_arrays(keys, pyarrow.array(workload.names)),
                "value": values,
            }), tags=["sensor"])

    def size(self, folder):
        return common.folder_bytes(self.path)

    def rows(self, i):
        return self.table.rows(i.names, i.start, i.end).to_pandas()

    q1 = q2 = q3 = q4 = q5 = q6 = q7 = rows

    def q8(self, i):
        return self.table.at(i.start).to_dict()

    def q9(self, i):
        return self.table.resample("1h", "mean", i.names, i.start, i.end).to_pandas()

    q10 = q9

    def q11(self, i):
        found = self.table.lowest(i.names, i.start, i.end)
        return found.time[0], found.sensors[0], float(found.values[0])

    def q12(self, i):
        return self.table.rows(i.names, i.start, i.end, outside=(i.low, i.high)).to_pandas()


class DuckDB:
    """In this process, one table sorted by sensor and time; fetched as numpy arrays."""

    title = "DuckDB"

    def __init__(self, folder, options):
        self.path, self.options = f"{folder}/db", options
        self.settings = f"in process, threads {options.threads}, sorted by sensor and time, fetched as numpy"
        self.open()

    def open(self):
        import duckdb
        self.duck = duckdb.connect(self.path, config={"threads": self.options.threads})

    def close(self):
        self.duck.close()

    def version(self):
        return common.version("duckdb")

    def load(self, workload):
        self.duck.execute("CREATE TABLE readings (sensor VARCHAR, time TIMESTAMP_NS, value DOUBLE)")
        for name, values in zip(workload.names, workload.values):
            arrivals = pandas.DataFrame({"time": workload.time.view("datetime64[ns]"), "value": values})  # noqa: F841, found by name
            self.duck.execute("INSERT INTO readings SELECT ?, time, value FROM arrivals", [name])
        self.duck.execute("CHECKPOINT")

    def size(self, folder):
        return common.folder_bytes(self.path)

    def ask(self, i, sql, *more):
        sql = sql.replace("$range", "time >= make_timestamp_ns(?) AND time < make_timestamp_ns(?)")
        return self.duck.execute(sql, [i.start, i.end, *more]).fetchnumpy()

    def q1(self, i):
        found = self.ask(i, "SELECT time, value FROM readings WHERE $range AND sensor = ? ORDER BY time", i.names[0])
        return side_by_side(found["time"], found["value"], i.names)

    q2 = q3 = q1

    def q4(self, i):
        names = ",".join(repr(name) for name in i.names)
        found = self.ask(i, f"SELECT time, value FROM readings WHERE $range AND sensor IN ({names}) ORDER BY sensor, time")
        return side_by_side(found["time"], found["value"], i.names)

    q5 = q6 = q7 = q4

    def q8(self, i):
        found = self.duck.execute("SELECT sensor, value FROM readings WHERE time = make_timestamp_ns(?)", [i.start]).fetchnumpy()
        return dict(zip(found["sensor"].tolist(), found["value"].tolist()))

    def q9(self, i):
        names = ",".join(repr(name) for name in i.names)
        found = self.ask(i, f"SELECT sensor, time_bucket(INTERVAL '1 hour', time) AS time, avg(value) AS value FROM readings WHERE $range AND sensor IN ({names}) GROUP BY ALL ORDER BY sensor, time")
        return side_by_side(found["time"], found["value"], i.names)

    q10 = q9

    def q11(self, i):
        return self.duck.execute("SELECT time, sensor, value FROM readings WHERE time >= make_timestamp_ns(?) AND time < make_timestamp_ns(?) AND sensor = ? ORDER BY value, time LIMIT 1", [i.start, i.end, i.names[0]]).fetchone()

    def q12(self, i):
        found = self.ask(i, "SELECT time, value FROM readings WHERE $range AND sensor = ? AND (value <= ? OR value >= ?) ORDER BY time", i.names[0], i.low, i.high)
        return side_by_side(found["time"], found["value"], i.names)


class ClickHouse:
    """chdb in this process, a MergeTree by sensor and time."""

    title = "ClickHouse (chdb)"

    def __init__(self, folder, options):
        self.path, self.options = f"{folder}/db", options
        self.settings = f"in process, threads {options.threads}, MergeTree by sensor and time, answers as Arrow"
        self.open()

    def open(self):
        from chdb import session
        self.server = session.Session(self.path)
        self.server.query(f"SET max_threads = {self.options.threads}")
        self.server.query("SET enable_alp_codec = 1")

    def close(self):
        self.server.close()

    def version(self):
        return common.version("chdb")

    def load(self, workload):
        import pyarrow
        self.server.query("CREATE DATABASE d")
        self.server.query("CREATE TABLE d.readings (time DateTime64(9) CODEC(DoubleDelta, ZSTD(1)), sensor LowCardinality(String) CODEC(ZSTD(1)), value Float64 CODEC(ALP, ZSTD(1))) ENGINE = MergeTree ORDER BY (sensor, time)")
        for start in range(0, workload.sensors, 10):
            part = range(start, min(start + 10, workload.sensors))
            arrivals = pyarrow.table({  # noqa: F841, found by name
                "time": pyarrow.array(numpy.tile(workload.time, len(part)), pyarrow.timestamp("ns")),
                "sensor": numpy.repeat(numpy.array(workload.names, dtype=object)[list(part)], len(workload.time)),
                "value": workload.values[list(part)].ravel(),
            })
            self.server.query("INSERT INTO d.readings SELECT * FROM Python(arrivals)")
        self.server.query("OPTIMIZE TABLE d.readings FINAL")

    def size(self, folder):
        return int(str(self.server.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'd' AND active", "TSV")))

    def ask(self, sql):
        import pyarrow
        answer = self.server.query(sql, "ArrowStream").bytes()
        return pyarrow.ipc.open_stream(answer).read_all() if answer else None

    def where(self, i):
        names = ",".join(repr(name) for name in i.names)
        return f"time >= fromUnixTimestamp64Nano({i.start}) AND time < fromUnixTimestamp64Nano({i.end}) AND sensor IN ({names})"

    def frame(self, i, sql):
        found = self.ask(sql)
        return side_by_side(found["time"].cast("timestamp[ns]").to_numpy(), found["value"].to_numpy(), i.names)

    def q1(self, i):
        return self.frame(i, f"SELECT time, value FROM d.readings WHERE {self.where(i)} ORDER BY sensor, time")

    q2 = q3 = q4 = q5 = q6 = q7 = q1

    def q8(self, i):
        found = self.ask(f"SELECT toString(sensor) AS name, value FROM d.readings WHERE time = fromUnixTimestamp64Nano({i.start})")
        return dict(zip((name.decode() if isinstance(name, bytes) else name for name in found["name"].to_pylist()), found["value"].to_pylist()))

    def q9(self, i):
        return self.frame(i, f"SELECT sensor, toDateTime64(toStartOfHour(time), 9) AS time, avg(value) AS value FROM d.readings WHERE {self.where(i).replace('time ', 'd.readings.time ')} GROUP BY sensor, time ORDER BY sensor, time")

    q10 = q9

    def q11(self, i):
        found = self.ask(f"SELECT time, toString(sensor) AS name, value FROM d.readings WHERE {self.where(i)} ORDER BY value, time LIMIT 1")
        name = found["name"][0].as_py()
        return found["time"].cast("timestamp[ns]").to_numpy()[0], name.decode() if isinstance(name, bytes) else name, found["value"][0].as_py()

    def q12(self, i):
        return self.frame(i, f"SELECT time, value FROM d.readings WHERE {self.where(i)} AND (value <= {i.low!r} OR value >= {i.high!r}) ORDER BY time")


class ArcticDB:
    """In this process: one wide frame."""

    title, settings = "ArcticDB", "in process, lmdb, one wide frame"

    def __init__(self, folder, options):
        self.path = f"{folder}/db"
        pathlib.Path(self.path).mkdir(parents=True, exist_ok=True)
        self.open()

    def open(self):
        import arcticdb
        self.arcticdb = arcticdb
        self.arctic = arcticdb.Arctic(f"lmdb://{self.path}?map_size=16GB")
        if self.arctic.has_library("readings"):
            self.library = self.arctic["readings"]

    def close(self):
        self.library = self.arctic = None

    def version(self):
        return common.version("arcticdb")

    def load(self, workload):
        self.library = self.arctic.create_library("readings")
        self.library.write("wide", workload.frame())

    def size(self, folder):
        return common.folder_bytes(self.path)

    def span(self, i):
        return pandas.Timestamp(i.start), pandas.Timestamp(i.end - 1)

    def q1(self, i):
        return self.library.read("wide", columns=i.names, date_range=self.span(i)).data

    q2 = q3 = q4 = q5 = q6 = q7 = q1

    def q8(self, i):
        found = self.library.read("wide", date_range=self.span(i)).data
        return dict(zip(found.columns, found.to_numpy()[0].tolist()))

    def q9(self, i):
        query = self.arcticdb.QueryBuilder().resample("1h").agg({name: "mean" for name in i.names})
        return self.library.read("wide", date_range=self.span(i), query_builder=query).data[i.names]

    q10 = q9

    def q11(self, i):
        column = self.q1(i)[i.names[0]]
        values = column.to_numpy()
        place = int(values.argmin())
        return column.index[place], i.names[0], float(values[place])

    def q12(self, i):
        frame = self.q1(i)
        values = frame[i.names[0]].to_numpy()
        return frame[(values <= i.low) | (values >= i.high)]


class InfluxDB:
    """A server on this machine; answers as CSV, read by pyarrow."""

    title, settings = "InfluxDB", "server on this machine, shards of 10 years, index in memory, answers as CSV"

    def __init__(self, folder, options):
        self.folder = folder
        self.open()

    def open(self):
        import http_write
        self.http_write = http_write
        self.server = http_write.start_influxdb(self.folder, cold="2s", shard="520w")
        import http.client
        import urllib.parse
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(self.server.url).netloc)

    def close(self):
        self.connection.close()
        self.server.stop()

    def version(self):
        return subprocess.run(["influxd", "version"], capture_output=True, text=True, check=True).stdout.split()[1]

    def load(self, workload):
        for lines in line_protocol(workload):
            self.http_write.get(f"{self.server.url}/write?db=bench", lines)
        import influx_sizes
        influx_sizes.settled_bytes(self.folder)

    def size(self, folder):
        return common.folder_bytes(f"{folder}/data")

    def ask(self, sql):
        import io
        import urllib.parse
        import pyarrow.csv
        target = "/query?" + urllib.parse.urlencode({"db": "bench", "epoch": "ns", "q": sql})
        self.connection.request("GET", target, headers={"Accept": "application/csv"})
        return pyarrow.csv.read_csv(io.BytesIO(self.connection.getresponse().read()))

    def where(self, i):
        names = " OR ".join(f"sensor = '{name}'" for name in i.names)
        return f"time >= {i.start} AND time < {i.end} AND ({names})"

    def frame(self, i, sql, column):
        # The answer is grouped by sensor, in the order of their names.
        found = self.ask(sql)
        return side_by_side(found["time"].to_numpy().view("datetime64[ns]"), found[column].to_numpy(), i.names)

    def q1(self, i):
        return self.frame(i, f"SELECT value FROM readings WHERE {self.where(i)} GROUP BY sensor", "value")

    q2 = q3 = q4 = q5 = q6 = q7 = q1

    def q8(self, i):
        found = self.ask(f"SELECT value, sensor FROM readings WHERE time = {i.start}")
        return dict(zip(found["sensor"].to_pylist(), found["value"].to_pylist()))

    def q9(self, i):
        return self.frame(i, f"SELECT mean(value) FROM readings WHERE {self.where(i)} GROUP BY sensor, time(1h)", "mean")

    q10 = q9

    def q11(self, i):
        found = self.ask(f"SELECT min(value) FROM readings WHERE {self.where(i)}")
        return found["time"][0].as_py(), i.names[0], found["min"][0].as_py()

    def q12(self, i):
        return self.frame(i, f"SELECT value FROM readings WHERE {self.where(i)} AND (value <= {i.low!r} OR value >= {i.high!r})", "value")


class QuestDB:
    """A server on this machine; answers as Parquet. Its jar comes from Maven, org.questdb:questdb."""

    title = "QuestDB"
    settings = "server on this machine, indexed symbol, partitions of months, answers as Parquet"

    def __init__(self, folder, options):
        self.folder = folder
        self.open()

    def open(self):
        import http_write
        self.http_write = http_write
        self.server = http_write.start_questdb(self.folder)

    def close(self):
        self.server.stop()

    def version(self):
        return self.http_write.QUESTDB

    def get(self, path, **parameters):
        import urllib.parse
        import urllib.request
        with urllib.request.urlopen(f"{self.server.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=600) as answer:
            return answer.read()

    def load(self, workload):
        self.get("/exec", query="CREATE TABLE readings (time TIMESTAMP, sensor SYMBOL INDEX, value DOUBLE) TIMESTAMP(time) PARTITION BY MONTH WAL")
        for lines in line_protocol(workload):
            self.http_write.get(f"{self.server.url}/write?precision=n", lines)
        while int(self.get("/exp", query="SELECT count() FROM readings").split()[-1]) < workload.values.size:
            time.sleep(0.5)

    def size(self, folder):
        return common.folder_bytes(f"{folder}/db")

    def ask(self, sql):
        import io
        import pyarrow.parquet
        return pyarrow.parquet.read_table(io.BytesIO(self.get("/exp", query=sql, fmt="parquet")))

    def where(self, i):
        names = ",".join(repr(name) for name in i.names)
        return f"time >= {i.start // 1000} AND time < {i.end // 1000} AND sensor IN ({names})"

    def frame(self, i, found):
        # Rows come by time, and at one time by sensor, as they arrived.
        values = found["value"].to_numpy().reshape(-1, len(i.names))
        index = pandas.DatetimeIndex(found["time"].to_numpy()[:: len(i.names)])
        return pandas.DataFrame(values, index=index, columns=i.names, copy=False)

    def q1(self, i):
        return self.frame(i, self.ask(f"SELECT time, value FROM readings WHERE {self.where(i)}"))

    q2 = q3 = q4 = q5 = q6 = q7 = q1

    def q8(self, i):
        found = self.ask(f"SELECT sensor, value FROM readings WHERE time = {i.start // 1000}")
        return dict(zip(found["sensor"].to_pylist(), found["value"].to_pylist()))

    def q9(self, i):
        found = self.ask(f"SELECT time, sensor, avg(value) AS value FROM readings WHERE {self.where(i)} SAMPLE BY 1h ORDER BY sensor, time")
        return side_by_side(found["time"].to_numpy(), found["value"].to_numpy(), i.names)

    q10 = q9

    def q11(self, i):
        found = self.ask(f"SELECT time, sensor, value FROM readings WHERE {self.where(i)} ORDER BY value, time LIMIT 1")
        return found["time"].to_numpy()[0], found["sensor"][0].as_py(), found["value"][0].as_py()

    def q12(self, i):
        return self.frame(i, self.ask(f"SELECT time, value FROM readings WHERE {self.where(i)} AND (value <= {i.low!r} OR value >= {i.high!r})"))


def line_protocol(workload):
    """The readings of each six hours in Influx's line protocol, in the order in which they arrive."""
    heads = [f"readings,sensor={name} value=" for name in workload.names]
    for start in range(0, len(workload.time), 360):
        lines = []
        for minute in range(start, start + 360):
            tail = f" {workload.time[minute]}"
            lines.extend(f"{head}{value!r}{tail}" for head, value in zip(heads, workload.values[:, minute].tolist()))
        yield "\n".join(lines).encode()


SYSTEMS = {"tidefall": Tidefall, "duckdb": DuckDB, "chdb": ClickHouse, "arcticdb": ArcticDB, "influxdb": InfluxDB, "questdb": QuestDB}


# Repeats of an instance stop when they have taken this long.
MS_MAX = 1_000


def milliseconds(action, instance):
    start = time.perf_counter()
    answer = action(instance)
    seconds = time.perf_counter() - start
    del answer
    return seconds * 1e3


def warm(action, instance, runs):
    """The median of some runs."""
    found = []
    while len(found) < runs and sum(found) < MS_MAX:
        found.append(milliseconds(action, instance))
    return statistics.median(found)


def drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def measure(system, query, instances, runs):
    """The milliseconds of each instance, warm; raises when an answer is wrong."""
    action = getattr(system, query)
    for instance in instances:
        instance.check(action(instance))
    return [warm(action, instance, runs) for instance in instances]


def measure_cold(system, query, instances):
    """The milliseconds of each instance with all caches empty."""
    found = []
    for instance in instances:
        system.close()
        drop_caches()
        system.open()
        found.append(milliseconds(getattr(system, query), instance))
    return found


def report(query, caches, system, options, found):
    quartiles = statistics.quantiles(found, n=4)
    median = statistics.median(found)
    print(json.dumps({
        "bench": "query", "query": query, "caches": caches, "sensors": options.sensors, "days": options.days, "system": system.title,
        "version": system.version(), "model": options.model if isinstance(system, Tidefall) else None, "settings": system.settings, "unit": "ms",
        "runs": [round(one, 4) for one in found], "median": round(median, 4), "spread": round((quartiles[2] - quartiles[0]) / median, 4),
    }), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser, runs=5)
    parser.set_defaults(sensors=100, days=366)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--model", choices=["long", "short", "kv", "mixed"], default="long", help="where Tidefall's readings lie")
    parser.add_argument("--only", help="queries, separated by commas")
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--cold-instances", type=int, default=10)
    parser.add_argument("--memory", type=int, default=512, help="Tidefall's budget in MiB")
    parser.add_argument("--cold", action="store_true", help="measure with empty caches")
    parser.add_argument("--both", action="store_true", help="measure warm and then cold")
    parser.add_argument("--keep", action="store_true", help="use what an earlier run has loaded")
    options = parser.parse_args()
    workload = Workload(options.sensors, options.days, options.seed)
    folder = pathlib.Path(options.work) / f"queries-{options.system}-{options.model}-{options.sensors}x{options.days}"
    is_loaded = options.keep and (folder / "loaded").exists()
    if not is_loaded:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    system = SYSTEMS[options.system](str(folder), options)
    if not is_loaded:
        start = time.perf_counter()
        system.load(workload)
        seconds = time.perf_counter() - start
        print(json.dumps({
            "bench": "load for queries", "sensors": options.sensors, "days": options.days, "system": system.title, "version": system.version(),
            "model": options.model if isinstance(system, Tidefall) else None, "settings": system.settings, "unit": "rows/s", "runs": [round(seconds, 4)],
            "median": round(workload.values.size / seconds), "spread": 0, "bytes_per_reading": round(system.size(str(folder)) / workload.values.size, 4),
        }), flush=True)
        (folder / "loaded").touch()
    queries = options.only.split(",") if options.only else possible(options.days)
    asked = {query: list(workload.instances(query, options.instances)) for query in queries}
    # Cold ones last: what is in memory is not when the database has been opened again.
    for query in queries if options.both or not options.cold else []:
        report(query, "warm", system, options, measure(system, query, asked[query], options.runs))
    for query in queries if options.both or options.cold else []:
        report(query, "cold", system, options, measure_cold(system, query, asked[query][: options.cold_instances]))
    system.close()


if __name__ == "__main__":
    main()

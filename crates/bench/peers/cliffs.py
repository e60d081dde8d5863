"""Questions on which a design as Tidefall's may fall off a cliff, asked of Tidefall and DuckDB in turn.

    python cliffs.py [--only hosts,many,long,tags] [--label before] [--runs N] [--memory MIB]

Bins finer than the blocks of metrics, the newest rows, very many sensors with few readings each, medians and windows over
all readings, joins with a small table, loads with many tags. Both run in this process on the same Arrow tables, Tidefall
in long columns, DuckDB sorted by sensor and time; answers are fetched as Arrow and compared. Prints milliseconds (loads:
rows per second), a line of JSON for each system and question; `--label` names a state of the code beside the version.
"""

import argparse
import os
import pathlib
import shutil
import time

import common
import numpy
import pyarrow
import pyarrow.compute

BUCKET = "time_bucket(INTERVAL '{}', time)"
HOSTS, HOST_ROWS, FIELDS = 200, 25_920, 10  # 200 hosts every 10 s for three days: 5.2 M rows
MANY = 1_000_000
LONG_SENSORS, LONG_ROWS = 500, 104_000  # 52 M rows
QUICK_RUNS, QUICK_MS = 25, 100
START_MS = common.START_NS // 1_000_000


def dictionary(names, keys):
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(keys, pyarrow.int32()), pyarrow.array(names))


def hosts(random):
    """Hosts with ten integer fields, in milliseconds, in order of arrival."""
    times = START_MS + 10_000 * numpy.arange(HOST_ROWS)
    names = [f"host_{number}" for number in range(HOSTS)]
    columns = {
        "time": pyarrow.array(numpy.repeat(times, HOSTS), pyarrow.timestamp("ms")),
        "host": dictionary(names, numpy.tile(numpy.arange(HOSTS), HOST_ROWS)),
    }
    for field in range(FIELDS):
        steps = random.integers(-1, 2, (HOST_ROWS, HOSTS))
        columns[f"f{field}"] = numpy.clip(50 + numpy.cumsum(steps, axis=0), 0, 100).ravel()
    return pyarrow.table(columns)


def many(random):
    """A million sensors with two readings each."""
    numbers = numpy.arange(MANY)
    names = pyarrow.array([f"m{number:07}" for number in numbers])
    return pyarrow.concat_tables(pyarrow.table({
        "time": pyarrow.array(numpy.full(MANY, START_MS + 60_000 * minute), pyarrow.timestamp("ms")),
        "host": names,
        "region": dictionary([f"r{number}" for number in range(50)], numbers % 50),
        "v": random.integers(0, 1000, MANY) / 8,
    }) for minute in range(2))


def long(random):
    """52 M floats of 500 sensors, every second, one sensor after the other."""
    times = pyarrow.array(START_MS + 1000 * numpy.arange(LONG_ROWS), pyarrow.timestamp("ms"))
    return pyarrow.concat_tables(pyarrow.table({
        "time": times,
        "sensor": dictionary([f"s{sensor:03}"], numpy.zeros(LONG_ROWS)),
        "v": random.integers(0, 8000, LONG_ROWS) / 8,
    }) for sensor in range(LONG_SENSORS))


def tags(random):
    """A million rows of 1,000 sensors with ten tags and ten fields."""
    sensors, rows = 1000, 1000
    columns = {"time": pyarrow.array(numpy.repeat(START_MS + 10_000 * numpy.arange(rows), sensors), pyarrow.timestamp("ms"))}
    for tag in range(10):
        count = 10 ** min(tag, 3)
        columns[f"tag{tag}"] = pyarrow.array(numpy.array([f"t{tag}_{value}" for value in range(count)])[numpy.tile(numpy.arange(sensors) % count, rows)])
    for field in range(FIELDS):
        columns[f"f{field}"] = random.normal(100, 20, sensors * rows).round(2)
    return pyarrow.table(columns)


def hosts_questions():
    end = "TIMESTAMP '2000-01-02 11:00:00'"
    for width in ("10 seconds", "1 minute", "7 minutes", "1 hour"):
        yield f"max by {width}", f"SELECT {BUCKET.format(width)} AS t, max(f0) AS x FROM hosts GROUP BY t"
    minute = BUCKET.format("1 minute")
    yield "max by 1 minute and host", f"SELECT {minute} AS t, host, max(f0) AS x FROM hosts GROUP BY t, host"
    yield "ten means by 1 minute", f"SELECT {minute} AS t, " + ", ".join(f"avg(f{field}) AS x{field}" for field in range(FIELDS)) + " FROM hosts GROUP BY t"
    yield "max by 1 minute, one host", f"SELECT {minute} AS t, max(f0) AS x FROM hosts WHERE host = 'host_7' GROUP BY t"
    yield "max by 1 minute, an hour", f"SELECT {minute} AS t, max(f0) AS x FROM hosts WHERE time >= {end} AND time < {end} + INTERVAL '1 hour' GROUP BY t"
    yield "newest 10 rows", "SELECT time, host, f0 FROM hosts ORDER BY time DESC, host LIMIT 10"
    yield "newest 10 times", "SELECT time FROM hosts ORDER BY time DESC LIMIT 10"
    yield "oldest 10 rows", "SELECT time, host, f0 FROM hosts ORDER BY time, host LIMIT 10"
    yield "newest 1,000 rows", "SELECT time, host, f0 FROM hosts ORDER BY time DESC, host LIMIT 1000"
    yield "newest 10 rows of a host", "SELECT time, f0 FROM hosts WHERE host = 'host_7' ORDER BY time DESC LIMIT 10"
    yield "newest 10 rows above 98", "SELECT time, host, f0 FROM hosts WHERE f0 > 98 ORDER BY time DESC, host LIMIT 10"
    yield "newest five bins before T", f"SELECT {minute} AS t, max(f0) AS x FROM hosts WHERE time < {end} GROUP BY t ORDER BY t DESC LIMIT 5"
    yield "ten largest values", "SELECT f1 FROM hosts ORDER BY f1 DESC LIMIT 10"
    yield "distinct times by value", "SELECT f0, count(DISTINCT time) AS n FROM hosts GROUP BY f0"
    yield "all rows by value, the last ten", "SELECT f1, time, host FROM hosts ORDER BY f1, time, host LIMIT 10 OFFSET 5000000"
    yield "big JOIN small", "SELECT r.room, avg(h.f0) AS x FROM hosts h JOIN rooms r ON h.host = r.host GROUP BY r.room"
    yield "small JOIN big", "SELECT r.room, avg(h.f0) AS x FROM rooms r JOIN hosts h ON h.host = r.host GROUP BY r.room"
    yield "big JOIN small by value", "SELECT r.room, count(*) AS n FROM hosts h JOIN rooms r ON h.f0 = r.v GROUP BY r.room"


def many_questions():
    yield "mean by a tag", "SELECT region, avg(v) AS x FROM many GROUP BY region"
    yield "count(DISTINCT host)", "SELECT count(DISTINCT host) AS n FROM many"
    yield "hosts by region", "SELECT region, count(DISTINCT host) AS n FROM many GROUP BY region"
    yield "all rows counted", "SELECT count(v) AS n FROM many"
    yield "rows of a region", "SELECT max(v) AS x FROM many WHERE region = 'r7'"
    yield "rows of a host", "SELECT time, v FROM many WHERE host = 'm0500000' ORDER BY time"


def long_questions():
    yield "median by sensor", "SELECT sensor, median(v) AS x FROM long GROUP BY sensor"
    yield "largest step", "SELECT max(d) AS x FROM (SELECT v - lag(v) OVER (PARTITION BY sensor ORDER BY time) AS d FROM long)"
    yield "distinct values by sensor", "SELECT sensor, count(DISTINCT v) AS n FROM long GROUP BY sensor"


ROOMS = pyarrow.table({
    "time": pyarrow.array([START_MS] * 20, pyarrow.timestamp("ms")),
    "host": [f"host_{number}" for number in range(0, HOSTS, 10)],
    "room": [f"room {number % 4}" for number in range(20)],
    "v": list(range(0, 100, 5)),
})
# The data, its tags, its questions, and small tables beside it with theirs.
LOADS = {
    "hosts": (hosts, ["host"], hosts_questions, {"rooms": (ROOMS, ["host"])}),
    "many": (many, ["host", "region"], many_questions, {}),
    "long": (long, ["sensor"], long_questions, {}),
    "tags": (tags, [f"tag{tag}" for tag in range(10)], lambda: (), {}),
}


class Tidefall:
    name = "Tidefall"

    def __init__(self, folder, options):
        import tidefall
        self.version = tidefall.__version__
        self.settings = f"in process, budget {options.memory} MiB, long columns"
        self.db = tidefall.open(f"{folder}/tidefall", memory_mib=options.memory)

    def load(self, name, table, tags):
        self.db.write(name, table, tags=tags, time="time")
        self.db.cascade(name, to="long")

    def ask(self, sql):
        return pyarrow.table(self.db.sql(sql))

    def close(self):
        self.db.close()


class DuckDB:
    name = "DuckDB"

    def __init__(self, folder, options):
        import duckdb
        self.version = common.version("duckdb")
        self.settings = f"in process, threads {options.threads}, no bound of memory, sorted by sensor and time"
        self.duck = duckdb.connect(f"{folder}/duckdb", config={"threads": options.threads})

    def load(self, name, table, tags):
        self.duck.register("arrivals", table)
        self.duck.execute(f"CREATE TABLE {name} AS SELECT * FROM arrivals ORDER BY {', '.join(tags)}, time")
        self.duck.unregister("arrivals")
        self.duck.execute("CHECKPOINT")

    def ask(self, sql):
        return self.duck.execute(sql).to_arrow_table()

    def close(self):
        self.duck.close()


def rows_of(table):
    """The rows of an answer, in an order and in types that do not depend on the system."""
    plain = []
    for column in table.columns:
        column = column.combine_chunks()
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pyarrow.types.is_timestamp(column.type):
            column = column.cast(pyarrow.timestamp("ns")).cast(pyarrow.int64())
        is_number = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type) or pyarrow.types.is_decimal(column.type)
        plain.append(column.cast(pyarrow.float64(), safe=False).to_numpy().round(6).tolist() if is_number else column.to_pylist())
    return sorted(zip(*plain), key=repr)


def measure(system, sql, runs):
    """The milliseconds of some runs after one to warm up, and the answer; of more runs where one takes some milliseconds."""
    answer, taken = system.ask(sql), []
    while len(taken) < runs or len(taken) < QUICK_RUNS and sum(taken) < QUICK_MS:
        start = time.perf_counter()
        system.ask(sql)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken, answer


def ask_both(systems, title, sql, options):
    answers = []
    for system in systems:
        try:
            taken, answer = measure(system, sql, options.runs)
        except Exception as error:  # What fails is a result, too; the page names it.
            common.report(f"cliff: {title}", system.name, system.version, system.settings, [0.0], "ms", state=options.label, error=str(error).splitlines()[0])
            continue
        answers.append(rows_of(answer))
        common.report(f"cliff: {title}", system.name, system.version, system.settings, taken, "ms", state=options.label)
    # Earlier versions begin some bins elsewhere.
    if len(answers) == 2 and options.label == "now":
        assert answers[0] == answers[1], f"{title}: {answers[0][:3]} and {answers[1][:3]}"


def load_both(systems, name, table, tags, options):
    for system in systems:
        start = time.perf_counter()
        system.load(name, table, tags)
        os.sync()
        rate = table.num_rows / (time.perf_counter() - start)
        common.report(f"cliff: load of {name}", system.name, system.version, system.settings, [rate], "rows/s", state=options.label)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser, runs=5)
    parser.add_argument("--only", help=f"some of {', '.join(LOADS)}, with commas between them")
    parser.add_argument("--systems", default="tidefall,duckdb")
    parser.add_argument("--memory", type=int, default=512, help="Tidefall's budget in MiB")
    parser.add_argument("--label", default="now", help="the state of the code that is measured")
    options = parser.parse_args()
    for name in options.only.split(",") if options.only else LOADS:
        make, tags, questions, beside = LOADS[name]
        folder = pathlib.Path(options.work) / "cliffs"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        known = {"tidefall": Tidefall, "duckdb": DuckDB}
        systems = [known[system](folder, options) for system in options.systems.split(",")]
        table = make(numpy.random.default_rng(options.seed))
        load_both(systems, name, table, tags, options)
        del table
        for other, (small, of) in beside.items():
            for system in systems:
                system.load(other, small, of)
        for title, sql in questions():
            ask_both(systems, title, sql, options)
        for system in systems:
            system.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

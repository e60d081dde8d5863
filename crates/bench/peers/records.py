"""Records with many dimensions: loads, sizes, the queries of the papers and boxes at random.

    python records.py --system tidefall|duckdb|duckdb-sorted|chdb|sqlite --workload taxi|ghcn [--rows 10000000] [--threads 2]

Every batch of a load is on disk before the next is sent; making batches does not count, and what a system needs to bring rows into its order does.
Queries are warm: each is asked to warm up, and then until the median of `--runs` counts; boxes are asked once to warm up and three times,
of which the least counts. Answers are fetched as Python's numbers, and compared with those of the system that was asked first (kept in
--work). With one thread the process is bound to one core. Prints lines of JSON.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import threading
import time

import common
import records_data


class Tidefall:
    """In this process; two feeders where there are two threads."""

    title = "Tidefall"

    def __init__(self, folder, workload, threads):
        import tidefall
        self.path, self.workload, self.threads = f"{folder}/db", workload, threads
        self.settings = f"in process, {threads} feeders, index of {len(workload.dimensions)} dimensions, fsync"
        self.db = tidefall.open(self.path)

    def version(self):
        import tidefall
        return tidefall.__version__

    def load(self, batches):
        columns = ", ".join(f"{name} {kind}" for name, kind in self.workload.columns.items())
        self.db.sql(f"CREATE TABLE {self.workload.table} ({columns}) WITH (model = 'records', index = '({', '.join(self.workload.dimensions)})')").to_dict()
        records = self.db.records(self.workload.table)
        return fed(batches, records.write, self.threads)

    def finish(self):
        self.db.cascade(self.workload.table)

    def size(self):
        # What was replaced stays for a minute, unless the database is closed.
        import tidefall
        self.db.close()
        self.db = tidefall.open(self.path)
        return common.folder_bytes(self.path)

    def ask(self, sql):
        answer = self.db.sql(sql).to_arrow()
        return [column[0].as_py() if answer.num_rows else None for column in answer.columns] if answer.num_rows <= 1 else answer.column(0).to_pylist()


class DuckDB:
    """In this process, rows as they arrive."""

    title = "DuckDB"

    def __init__(self, folder, workload, threads):
        import duckdb
        self.path, self.workload, self.threads = f"{folder}/db", workload, threads
        self.settings = f"in process, threads {threads}, {f'sorted by {self.order_of(workload)}' if self.order_of(workload) else 'not sorted'}, checkpoint"
        self.duck = duckdb.connect(self.path, config={"threads": threads})

    def order_of(self, _):
        return None

    def version(self):
        return common.version("duckdb")

    def load(self, batches):
        columns = ", ".join(f"{name} {kind}" for name, kind in self.workload.columns.items())
        self.duck.execute(f"CREATE TABLE {self.workload.table} ({columns})")

        def write(batch):
            self.duck.register("arrivals", batch)
            self.duck.execute(f"INSERT INTO {self.workload.table} SELECT * FROM arrivals")

        # One insert after the other: each uses all threads.
        return fed(batches, write, 1)

    def finish(self):
        order = self.order_of(self.workload)
        if order:
            self.duck.execute(f"CREATE TABLE sorted AS SELECT * FROM {self.workload.table} ORDER BY {order}")
            self.duck.execute(f"DROP TABLE {self.workload.table}")
            self.duck.execute(f"ALTER TABLE sorted RENAME TO {self.workload.table}")
        self.duck.execute("CHECKPOINT")

    def size(self):
        """Of the blocks in use: a file that a table was sorted in keeps those of the one that it came from."""
        block, used = self.duck.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
        return block * used

    def ask(self, sql):
        rows = self.duck.execute(sql).fetchall()
        return list(rows[0]) if len(rows) == 1 else [row[0] for row in rows]


class SortedDuckDB(DuckDB):
    """Sorted once all rows are there."""

    def order_of(self, workload):
        return workload.duckdb_order


class ClickHouse:
    """chdb in this process, a MergeTree in the order of a space-filling curve."""

    title = "ClickHouse (chdb)"
    KINDS = {"SMALLINT": "Int16", "INTEGER": "Int32", "BIGINT": "Int64", "DOUBLE": "Float64", "VARCHAR": "LowCardinality(String)"}
    CODECS = {"SMALLINT": "T64, ZSTD(1)", "INTEGER": "T64, ZSTD(1)", "BIGINT": "Delta, ZSTD(1)", "DOUBLE": "ALP, ZSTD(1)", "VARCHAR": "ZSTD(1)"}

    def __init__(self, folder, workload, threads):
        from chdb import session
        self.workload, self.threads = workload, threads
        self.settings = f"in process, threads {threads}, MergeTree by {workload.clickhouse_order}; ALP and others with ZSTD(1); fsync_after_insert"
        self.server = session.Session(f"{folder}/db")
        self.server.query(f"SET max_threads = {threads}")
        self.server.query("SET enable_alp_codec = 1")
        self.server.query("CREATE DATABASE IF NOT EXISTS d")
        self.server.query("USE d")

    def version(self):
        return common.version("chdb")

    def load(self, batches):
        columns = ", ".join(f"{name} {self.KINDS[kind]} CODEC({self.CODECS[kind]})" for name, kind in self.workload.columns.items())
        self.server.query(f"CREATE TABLE d.{self.workload.table} ({columns}) ENGINE = MergeTree ORDER BY ({self.workload.clickhouse_order}) "
                          "SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")

        def write(arrivals):  # found by name
            self.server.query(f"INSERT INTO d.{self.workload.table} SELECT * FROM Python(arrivals) SETTINGS max_insert_threads = {self.threads}")

        return fed(batches, write, 1)

    def finish(self):
        self.server.query(f"OPTIMIZE TABLE d.{self.workload.table} FINAL")

    def size(self):
        return int(str(self.server.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'd' AND active", "TSV")))

    def ask(self, sql):
        rows = json.loads(str(self.server.query(sql.replace(f"FROM {self.workload.table}", f"FROM d.{self.workload.table}"), "JSONCompact")))["data"]
        numbers = [[float(cell) if cell is not None else None for cell in row] for row in rows]
        return numbers[0] if len(numbers) == 1 else [row[0] for row in numbers]


class SQLite:
    """In this process, with the indexes of the paper; one transaction for each batch."""

    title = "SQLite"
    INDEXES = {"taxi": [records_data.Taxi.dimensions], "ghcn": [["element_id", "element_value"], ["element_id", "elevation"], ["element_id", "longitude", "latitude", "elevation"], ["element_id", "latitude"]]}

    def __init__(self, folder, workload, threads):
        import sqlite3
        self.workload, self.path = workload, f"{folder}/db"
        self.settings = "in process, indexes of the paper, WAL, synchronous = FULL"
        self.server = sqlite3.connect(self.path, check_same_thread=False)
        self.server.execute("PRAGMA journal_mode = WAL")
        self.server.execute("PRAGMA synchronous = FULL")

    def version(self):
        import sqlite3
        return sqlite3.sqlite_version

    def load(self, batches):
        table = self.workload.table
        self.server.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in self.workload.columns.items())})")
        for number, columns in enumerate(self.INDEXES[self.workload.name]):
            self.server.execute(f"CREATE INDEX index{number} ON {table} ({', '.join(columns)})")
        places = ", ".join("?" * len(self.workload.columns))

        def write(rows):
            with self.server:
                self.server.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

        # As SQLite wants them.
        rows = (list(zip(*(column.to_pylist() for column in batch.columns))) for batch in batches)
        return fed(rows, write, 1)

    def finish(self):
        self.server.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.server.execute("ANALYZE")

    def size(self):
        return common.folder_bytes(self.path)

    def ask(self, sql):
        rows = self.server.execute(sql).fetchall()
        return list(rows[0]) if len(rows) == 1 else [row[0] for row in rows]


SYSTEMS = {"tidefall": Tidefall, "duckdb": DuckDB, "duckdb-sorted": SortedDuckDB, "chdb": ClickHouse, "sqlite": SQLite}


def fed(batches, write, threads):
    """Seconds for which batches are written; so many threads take them from a stock, which is filled while no clock runs."""
    seconds, stock = 0.0, []

    def drain():
        while True:
            try:
                batch = stock.pop()
            except IndexError:
                return
            write(batch)

    def write_stock():
        feeders = [threading.Thread(target=drain) for _ in range(threads)]
        stock.reverse()
        start = time.perf_counter()
        for feeder in feeders:
            feeder.start()
        for feeder in feeders:
            feeder.join()
        return time.perf_counter() - start

    for batch in batches:
        stock.append(batch)
        if len(stock) == 10:
            seconds += write_stock()
    return seconds + write_stock()


def same(one, other):
    """Whether two answers are equal but for the order of additions."""
    close = lambda a, b: a is None and b is None or a is not None and b is not None and (a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or a != a and b != b)
    return len(one) == len(other) and all(map(close, one, other))


def check(path, answers):
    """Compares with the answers of the system that was first."""
    if not path.exists():
        path.write_text(json.dumps(answers))
        return
    for (sql, answer), (other_sql, expected) in zip(answers, json.loads(path.read_text()), strict=True):
        assert sql == other_sql and same(answer, expected), f"{sql}: {answer} instead of {expected}"


def timed(system, sql):
    start = time.perf_counter()
    answer = system.ask(sql)
    return (time.perf_counter() - start) * 1e3, answer


def warm(system, sql, runs):
    """The median in milliseconds, and the answer."""
    _, answer = timed(system, sql)
    found = []
    while len(found) < runs and sum(found) < 2_000:
        found.append(timed(system, sql)[0])
    return statistics.median(found), answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--workload", choices=records_data.WORKLOADS, default="taxi")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--boxes", type=int, default=1_000)
    parser.add_argument("--data", help="folder of the full data sets")
    parser.add_argument("--work", default="/tmp/tidefall-peers", help="scratch folder")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    workload = records_data.WORKLOADS[options.workload](options.data, options.rows)
    work = pathlib.Path(options.work)
    folder = work / f"records-{options.system}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    system = SYSTEMS[options.system](str(folder), workload, options.threads)
    batches = (workload.batch(number, min(records_data.BATCH_ROWS, options.rows - number * records_data.BATCH_ROWS)) for number in range(-(-options.rows // records_data.BATCH_ROWS)))
    seconds = system.load(batches)
    start = time.perf_counter()
    system.finish()
    os.sync()
    finished = seconds + time.perf_counter() - start
    size = system.size()
    queries = {name: (sql, *warm(system, sql, options.runs)) for name, sql in workload.queries()}
    asked = []
    for box in records_data.boxes(workload, options.boxes):
        sql = box.sql(workload.table)
        _, answer = timed(system, sql)
        asked.append((sql, min(timed(system, sql)[0] for _ in range(3)), answer))
    stem = f"records-{workload.name}-{options.rows}"
    check(work / f"{stem}-queries.json", [(sql, answer) for sql, _, answer in queries.values()])
    check(work / f"{stem}-boxes-{options.boxes}.json", [(sql, answer) for sql, _, answer in asked])
    times = sorted(ms for _, ms, _ in asked)
    print(json.dumps({
        "bench": f"records: {workload.name}", "system": system.title, "version": system.version(), "settings": system.settings,
        "rows": options.rows, "threads": options.threads, "arrived_rows_per_s": round(options.rows / seconds), "ordered_rows_per_s": round(options.rows / finished),
        "bytes_per_record": round(size / options.rows, 2), "queries_ms": {name: round(ms, 4) for name, (_, ms, _) in queries.items()},
        "boxes": len(times), "boxes_geometric_mean_ms": round(statistics.geometric_mean(times), 4) if times else None,
        "boxes_p50_ms": round(statistics.median(times), 4) if times else None, "boxes_p99_ms": round(times[int(len(times) * 0.99)], 4) if times else None,
        "boxes_most_ms": round(times[-1], 4) if times else None,
        "median": round(statistics.geometric_mean(ms for _, ms, _ in queries.values()), 4), "unit": "ms", "spread": 0.0,
    }), flush=True)
    slow = sorted(asked, key=lambda one: -one[1])[:3]
    for sql, ms, answer in slow:
        print(f"{ms:.2f} ms: {sql} -> {answer}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

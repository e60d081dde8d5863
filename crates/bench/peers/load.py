"""Bulk load of the papers' sensor workload into the peers, sorted by sensor and time and on disk.

    python load.py [--only duckdb|chdb|arcticdb|parquet|tidefall] [--days N] [--runs N]

Tidefall is measured here from files, by its command line; from memory by `tidefall-bench load`. Prints rows per second and bytes per reading, a line of JSON each. Every run ends with a sync.
"""

import argparse
import os
import subprocess

import common


def rates(name, system, version, settings, options, rows, action):
    """Times an action that loads into a folder; the action may give the size itself, where the folder
    holds files that the peer is about to remove."""
    sizes = []
    seconds, folder = common.repeat(options.runs, options.work, lambda folder: sizes.append(action(folder)))
    size = (sizes[-1] or common.folder_bytes(folder)) / rows
    common.report(name, system, version, settings, [rows / s for s in seconds], "rows/s", rows=rows, bytes_per_reading=round(size, 3))


def run_duckdb(options, table, parquet, csv):
    import duckdb
    columns = "{'time': 'TIMESTAMP_NS', 'sensor': 'VARCHAR', 'value': 'DOUBLE'}"
    sources = {
        "load from Arrow, sorted": ("arrivals", "ORDER BY sensor, time"),
        "load from Parquet, sorted": (f"'{parquet}'", "ORDER BY sensor, time"),
        "load from CSV, sorted": (f"read_csv('{csv}', header = true, columns = {columns})", "ORDER BY sensor, time"),
        "import of CSV, as it arrives": (f"read_csv('{csv}', header = true, columns = {columns})", ""),
    }
    for name, (source, order) in sources.items():
        def action(folder):
            duck = duckdb.connect(f"{folder}/db", config={"threads": options.threads})
            duck.register("arrivals", table)
            duck.execute(f"CREATE TABLE readings AS SELECT * FROM {source} {order}")
            duck.execute("CHECKPOINT")
            duck.close()
        rates(name, "DuckDB", common.version("duckdb"), f"threads {options.threads}, {order.lower() or 'not sorted'}, checkpoint", options, table.num_rows, action)


def run_chdb(options, table, parquet, csv):
    from chdb import session
    # The codecs that sizes.py found smallest for this workload.
    columns = "time DateTime64(9) CODEC(DoubleDelta, ZSTD(1)), sensor LowCardinality(String) CODEC(ZSTD(1)), value Float64 CODEC({})"
    structure = "time DateTime64(9), sensor String, value Float64"
    sources = {
        "load from Arrow, sorted": "SELECT * FROM Python(arrivals)",
        "load from Parquet, sorted": f"SELECT * FROM file('{parquet}', Parquet)",
        "load from CSV, sorted": f"SELECT * FROM file('{csv}', CSVWithNames, '{structure}')",
    }
    arrivals = table.set_column(1, "sensor", table["sensor"].cast("string"))  # noqa: F841, found by name
    for name, select in sources.items():
        def action(folder):
            server = session.Session(folder)
            server.query("SET enable_alp_codec = 1")
            server.query("CREATE DATABASE IF NOT EXISTS d")
            server.query(f"CREATE TABLE d.readings ({columns.format(options.codec)}) ENGINE = MergeTree ORDER BY (sensor, time) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1")
            server.query(f"INSERT INTO d.readings {select} SETTINGS max_threads = {options.threads}, max_insert_threads = {options.threads}, date_time_input_format = 'best_effort', input_format_parallel_parsing = 1")
            server.query("OPTIMIZE TABLE d.readings FINAL")
            size = server.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'd' AND active", "TSV")
            server.close()
            return int(str(size))
        rates(name, "ClickHouse (chdb)", common.version("chdb"), f"threads {options.threads}, MergeTree by sensor, time; value {options.codec}; fsync_after_insert", options, table.num_rows, action)


def run_arcticdb(options, table, parquet, _csv):
    import arcticdb
    import pandas
    values = table["value"].to_numpy().reshape(-1, options.sensors)
    index = pandas.DatetimeIndex(table["time"].to_numpy()[:: options.sensors])
    names = common.sensor_names(options.sensors)
    wide = pandas.DataFrame(values.copy(), index=index, columns=names)
    long_frames = [pandas.DataFrame({"value": values[:, i].copy()}, index=index) for i in range(options.sensors)]

    def library(folder):
        arctic = arcticdb.Arctic(f"lmdb://{folder}?map_size=8GB")
        return arctic.create_library("readings")

    def write_frame(folder):
        library(folder).write("wide", wide)

    def write_symbols(folder):
        library(folder).write_batch([arcticdb.WritePayload(name, frame) for name, frame in zip(names, long_frames)])

    def pivot_and_write(folder):
        frame = pandas.DataFrame(table["value"].to_numpy().reshape(-1, options.sensors), index=index, columns=names)
        library(folder).write("wide", frame)

    settings = "lmdb, defaults, data frames ready in memory"
    for name, action in [("load from a wide frame", write_frame), ("load from columns, a symbol a sensor", write_symbols), ("load from Arrow, pivoted by reshape", pivot_and_write)]:
        rates(name, "ArcticDB", common.version("arcticdb"), settings, options, table.num_rows, action)


def run_parquet(options, table, parquet, _csv):
    import duckdb
    def action(folder):
        duck = duckdb.connect(config={"threads": options.threads})
        duck.register("arrivals", table)
        duck.execute(f"COPY (SELECT * FROM arrivals ORDER BY sensor, time) TO '{folder}/readings.parquet' (FORMAT parquet, COMPRESSION zstd)")
    rates("load from Arrow, sorted", "Parquet + Zstandard (DuckDB)", common.version("duckdb"), f"threads {options.threads}, level 3", options, table.num_rows, action)


def run_tidefall(options, table, parquet, csv):
    def tidefall(folder, *args):
        subprocess.run([options.binary, *args, "--db", f"{folder}/db"], check=True, capture_output=True)

    def import_(folder, file):
        tidefall(folder, "import", file, "--table", "readings", "--time", "time", "--tags", "sensor")

    def import_and_cascade(folder, file):
        import_(folder, file)
        tidefall(folder, "cascade", "--to", "long")

    version = subprocess.run([options.binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    for name, file, action, settings in [
        ("load from Parquet, sorted", parquet, import_and_cascade, "two commands, in long columns at the end, fsync"),
        ("load from CSV, sorted", csv, import_and_cascade, "two commands, in long columns at the end, fsync"),
        ("import of CSV, as it arrives", csv, import_, "one command, fsync"),
    ]:
        rates(name, "Tidefall", version, settings, options, table.num_rows, lambda folder, file=file, action=action: action(folder, file))


SYSTEMS = {"duckdb": run_duckdb, "chdb": run_chdb, "arcticdb": run_arcticdb, "parquet": run_parquet, "tidefall": run_tidefall}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser)
    parser.add_argument("--only", choices=SYSTEMS)
    parser.add_argument("--codec", default="ALP, ZSTD(1)", help="ClickHouse's codec of the value")
    parser.add_argument("--binary", default="tidefall", help="Tidefall's program")
    options = parser.parse_args()
    files = common.workload_files(options)
    for name in [options.only] if options.only else SYSTEMS:
        SYSTEMS[name](options, *files)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()

"""Bytes on disk per reading (row) of every real data set and of the generated workload in the peers.

    python sizes.py [--data DIR] [--only TABLE] [--systems duckdb,parquet,chdb,arcticdb,tidefall]

Rows are sorted by tags and time. For ClickHouse every column is first written once with each of some
codecs, and the smallest are taken; Parquet tries Zstandard levels 3 and 19 with both generations of
encodings, DuckDB two block sizes. The settings name what won.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import duckdb

import common

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "duckdb"))
sys.dont_write_bytecode = True
from datasets import TABLES  # noqa: E402

CODECS = {
    "TIMESTAMP": ["DoubleDelta, ZSTD({})", "Delta(8), ZSTD({})", "T64, ZSTD({})", "ZSTD({})"],
    "DOUBLE": ["ZSTD({})", "ALP, ZSTD({})", "Gorilla, ZSTD({})", "FPC(12), ZSTD({})", "Delta(8), ZSTD({})", "DoubleDelta, ZSTD({})"],
    "BIGINT": ["ZSTD({})", "Delta(8), ZSTD({})", "DoubleDelta, ZSTD({})", "T64, ZSTD({})", "Delta(8), T64, ZSTD({})"],
    "BOOLEAN": ["ZSTD({})"],
    "VARCHAR": ["ZSTD({})"],
}
TYPES = {"DOUBLE": "Float64", "BIGINT": "Int64", "BOOLEAN": "Bool", "VARCHAR": "String"}
ZSTD_LEVEL = 9


def fresh(options, name):
    folder = pathlib.Path(options.work) / "sizes" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def size_duckdb(options, duck, table, order):
    # Small tables waste much of the default block of 256 KiB.
    for block in (16_384, 262_144):
        path = fresh(options, "duckdb") / "db"
        duck.execute(f"ATTACH '{path}' AS disk (BLOCK_SIZE {block})")
        duck.execute(f"CREATE TABLE disk.t AS SELECT * FROM {table} ORDER BY {order}")
        duck.execute("CHECKPOINT disk")
        duck.execute("DETACH disk")
        yield common.folder_bytes(path), f"block size {block}, checkpoint"


def size_parquet(options, duck, table, order):
    for level in (3, 19):
        for pages in ("v1", "v2"):
            path = fresh(options, "parquet") / "t.parquet"
            duck.execute(f"COPY (SELECT * FROM {table} ORDER BY {order}) TO '{path}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {level}, PARQUET_VERSION {pages}, ROW_GROUP_SIZE 1000000)")
            yield common.folder_bytes(path), f"level {level}, encodings {pages}"


def size_chdb(options, duck, table, order):
    from chdb import session
    described = [(name, type_) for name, type_, *_ in duck.execute(f"DESCRIBE {table}").fetchall()]
    keys = [key.strip().strip('"') for key in order.split(",")]
    folder = fresh(options, "chdb")
    source = folder / "t.parquet"
    duck.execute(f"COPY (SELECT * FROM {table} ORDER BY {order}) TO '{source}' (FORMAT parquet)")
    server = session.Session(str(folder / "db"))
    server.query("SET enable_alp_codec = 1")
    server.query("CREATE DATABASE d")

    def column_type(name, type_):
        if type_.startswith("TIMESTAMP"):
            return "DateTime64(9)"
        if name in keys or (type_ == "VARCHAR"):
            inner = TYPES[type_] if name in keys else f"Nullable({TYPES[type_]})"
            return f"LowCardinality({inner})"
        nulls = duck.execute(f'SELECT count(*) - count("{name}") FROM {table}').fetchall()[0][0]
        return f"Nullable({TYPES[type_]})" if nulls else TYPES[type_]

    types = {name: column_type(name, type_) for name, type_ in described}
    candidates = {}
    for name, type_ in described:
        kind = "TIMESTAMP" if type_.startswith("TIMESTAMP") else type_
        candidates[name] = [codec.format(ZSTD_LEVEL) for codec in CODECS[kind]]
    tries = max(map(len, candidates.values()))
    found = {name: {} for name in types}

    def build(into, codecs):
        columns = ", ".join(f"`{name}` {types[name]} CODEC({codec})" for name, codec in codecs.items())
        by = ", ".join(f"`{key}`" for key in keys)
        server.query(f"CREATE TABLE d.{into} ({columns}) ENGINE = MergeTree ORDER BY ({by}) SETTINGS min_bytes_for_wide_part = 0, old_parts_lifetime = 0, allow_suspicious_low_cardinality_types = 1")
        names = ", ".join(f"`{name}`" for name in types)
        server.query(f"INSERT INTO d.{into} ({names}) SELECT {names} FROM file('{source}', Parquet) SETTINGS max_insert_threads = 1, max_threads = 1")
        server.query(f"OPTIMIZE TABLE d.{into} FINAL")
        text = str(server.query(f"SELECT column, sum(column_data_compressed_bytes) FROM system.parts_columns WHERE database = 'd' AND table = '{into}' AND active GROUP BY column", "TSV"))
        return {name: int(size) for name, size in (line.split("\t") for line in text.strip().splitlines())}

    for number in range(tries):
        codecs = {name: options_[number % len(options_)] for name, options_ in candidates.items()}
        for name, size in build(f"try{number}", codecs).items():
            found[name][codecs[name]] = size
        server.query(f"DROP TABLE d.try{number} SYNC")
    best = {name: min(sizes, key=sizes.get) for name, sizes in found.items()}
    build("best", best)
    size = int(str(server.query("SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'd' AND table = 'best' AND active", "TSV")))
    server.close()
    yield size, "; ".join(f"{name} {codec}" for name, codec in best.items())


def size_arcticdb(options, duck, table, order):
    import arcticdb
    folder = fresh(options, "arcticdb")
    frame = duck.execute(f"SELECT * FROM {table} ORDER BY time").df().set_index("time")
    library = arcticdb.Arctic(f"lmdb://{folder}?map_size=4GB").create_library("r")
    for name in frame.columns:
        kind = str(frame[name].dtype)
        if kind in ("boolean", "object", "str"):
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None).map(lambda v: None if v is None else str(v))
        elif kind.startswith("Int"):  # ArcticDB has no whole numbers with gaps
            frame[name] = frame[name].astype("float64" if frame[name].isna().any() else "int64")
    library.write("t", frame)
    yield common.folder_bytes(folder), "lmdb, one symbol, sorted by time"


def size_tidefall(options, duck, table, order):
    folder = fresh(options, "tidefall")
    name = table.strip('"')
    if name in TABLES:
        files, args = TABLES[name].paths(options.data), TABLES[name].import_args
    else:
        files, args = [str(folder / "t.parquet")], ["--time", "time", "--tags", "sensor"]
        duck.execute(f"COPY (SELECT * FROM {table} ORDER BY time) TO '{files[0]}' (FORMAT parquet)")
    for command in [["import", *files, "--table", name, *args], ["cascade", "--to", "long"]]:
        subprocess.run([options.binary, *command, "--db", str(folder / "db")], check=True, capture_output=True)
    yield common.folder_bytes(folder / "db" / "objects"), "long columns, block metrics and index included"


SYSTEMS = {"tidefall": size_tidefall, "duckdb": size_duckdb, "parquet": size_parquet, "chdb": size_chdb, "arcticdb": size_arcticdb}
SYSTEM_NAMES = {"tidefall": "Tidefall", "duckdb": "DuckDB", "parquet": "Parquet + Zstandard (DuckDB)", "chdb": "ClickHouse (chdb)", "arcticdb": "ArcticDB"}
VERSIONS = {"duckdb": "duckdb", "parquet": "duckdb", "chdb": "chdb", "arcticdb": "arcticdb"}


def program_version(binary):
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def measure(options, duck, name, table, order):
    rows = duck.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
    for system in options.systems.split(","):
        try:
            size, settings = min(SYSTEMS[system](options, duck, table, order))
        except Exception as error:  # one peer's trouble must not hide the others' figures
            print(f"{name}, {system}: {error}", file=sys.stderr)
            continue
        version = common.version(VERSIONS[system]) if system in VERSIONS else program_version(options.binary)
        common.report(f"bytes per reading: {name}", SYSTEM_NAMES[system], version, settings, [size / rows], "bytes/row", rows=rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser)
    parser.add_argument("--data", help="folder of the full data sets; without it the carried ones are measured")
    parser.add_argument("--only", help="one table, or 'generated'")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--binary", default="tidefall", help="Tidefall's program")
    options = parser.parse_args()
    for table in TABLES.values():
        if options.only not in (None, table.name) or not table.paths(options.data):
            continue
        duck = duckdb.connect(config={"threads": options.threads})
        table.load(duck, options.data)
        order = ", ".join([*(f'"{tag}"' for tag in table.tags), "time"])
        measure(options, duck, table.name, f'"{table.name}"', order)
    if options.only in (None, "generated"):
        duck = duckdb.connect(config={"threads": options.threads})
        duck.register("arrivals", common.workload(options.sensors, options.days, options.seed))
        duck.execute("CREATE TABLE generated AS SELECT time, sensor::VARCHAR AS sensor, value FROM arrivals")
        measure(options, duck, "generated", "generated", "sensor, time")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()

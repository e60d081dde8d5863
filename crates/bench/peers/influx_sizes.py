"""Bytes on disk per reading (row) of every real data set and of the generated workload in InfluxDB.

    python influx_sizes.py [--data DIR] [--only TABLE]

Every table becomes a measurement with its tags and fields, written as line protocol in batches. The
size is taken when the snapshots are on disk and the files are fully compacted, without the log.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import duckdb

import common
import http_write

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "duckdb"))
sys.dont_write_bytecode = True
from datasets import TABLES  # noqa: E402

BATCH_ROWS = 20_000
# The size counts as final when it has not changed for this long.
QUIET_SECONDS = 8
WAIT_SECONDS_MAX = 180
# Compaction begins when writes have paused for this long.
COLD = "2s"


def line_sql(name, tags, fields):
    """SQL that makes a row of a table a line of line protocol, or null when it has no field."""
    escaped = lambda column: f"""replace(replace(replace("{column}"::VARCHAR, ' ', '\\ '), ',', '\\,'), '=', '\\=')"""
    parts = []
    for column, type_ in fields.items():
        key = column.replace(" ", "\\ ")
        value = {
            "BIGINT": f'"{column}"::VARCHAR || \'i\'',
            "VARCHAR": f"""'"' || replace("{column}", '"', '\\"') || '"'""",
        }.get(type_, f'"{column}"::VARCHAR')
        parts.append(f"'{key}=' || {value}")
    head = "".join(f""" || coalesce(',{tag}=' || {escaped(tag)}, '')""" for tag in tags)
    return f"SELECT '{name}'{head} || ' ' || concat_ws(',', {', '.join(parts)}) || ' ' || epoch_ns(time)::VARCHAR AS line FROM {name} WHERE coalesce({', '.join(f'{chr(34)}{c}{chr(34)}::VARCHAR' for c in fields)}) IS NOT NULL ORDER BY time"


def settled_bytes(folder):
    """The size of the data files once they stop changing."""
    deadline, last, since = time.monotonic() + WAIT_SECONDS_MAX, None, time.monotonic()
    while time.monotonic() < deadline:
        size = common.folder_bytes(f"{folder}/data")
        if size != last:
            last, since = size, time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS:
            break
        time.sleep(1)
    return last


def measure(options, version, duck, name, tags, fields):
    folder = pathlib.Path(options.work) / "influx-sizes"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = http_write.start_influxdb(folder, cold=COLD, shard="520w")
    rows = 0
    start = time.perf_counter()
    try:
        lines = duck.execute(line_sql(name, tags, fields))
        while batch := lines.fetchmany(BATCH_ROWS):
            rows += len(batch)
            http_write.get(f"{server.url}/write?db=bench", "\n".join(line for (line,) in batch).encode())
        rate = rows / (time.perf_counter() - start)
        size = settled_bytes(folder)
    finally:
        server.stop()
    common.report(f"bytes per reading: {name}", "InfluxDB", version, "shards of 10 years, index in memory, fully compacted, no log", [size / rows], "bytes/row", rows=rows, rows_per_second_in=round(rate))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_options(parser)
    parser.add_argument("--data", help="folder of the full data sets; without it the carried ones are measured")
    parser.add_argument("--only", help="one table, or 'generated'")
    options = parser.parse_args()
    version = subprocess.run(["influxd", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    for table in TABLES.values():
        if options.only in (None, table.name) and table.paths(options.data):
            duck = duckdb.connect(config={"threads": options.threads})
            table.load(duck, options.data)
            measure(options, version, duck, table.name, list(table.tags), table.fields)
    if options.only in (None, "generated"):
        duck = duckdb.connect(config={"threads": options.threads})
        duck.register("arrivals", common.workload(options.sensors, options.days, options.seed))
        duck.execute("CREATE TABLE generated AS SELECT time, sensor::VARCHAR AS sensor, value FROM arrivals")
        measure(options, version, duck, "generated", ["sensor"], {"value": "DOUBLE"})


if __name__ == "__main__":
    main()

"""What the drivers share: the papers' sensor workload, timing, and the form of their results.

Workload: S sensors, one reading a minute from 2000-01-01, values N(mu, sigma^2) with mu ~ U(200, 400)
and sigma ~ U(50, 70) for each sensor, rounded to 3 decimals; rows in order of arrival, that is by time
and then by sensor. Columns: `time` (nanoseconds), `sensor` ("s000"...), `value`.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time

import numpy
import pyarrow
import pyarrow.csv
import pyarrow.parquet

MINUTES_PER_DAY = 1_440
START_NS = 946_684_800_000_000_000  # 2000-01-01
NS_PER_MINUTE = 60_000_000_000


def sensor_names(sensors):
    return [f"s{number:03}" for number in range(sensors)]


def workload(sensors, days, seed):
    """The workload as an Arrow table of triplets, one batch a day."""
    random = numpy.random.default_rng(seed)
    mu, sigma = random.uniform(200, 400, sensors), random.uniform(50, 70, sensors)
    names = pyarrow.array(sensor_names(sensors))
    keys = pyarrow.array(numpy.tile(numpy.arange(sensors, dtype=numpy.int32), MINUTES_PER_DAY))
    batches = []
    for day in range(days):
        minutes = START_NS + (day * MINUTES_PER_DAY + numpy.arange(MINUTES_PER_DAY)) * NS_PER_MINUTE
        values = numpy.round(random.normal(mu, sigma, (MINUTES_PER_DAY, sensors)), 3).ravel()
        batches.append(pyarrow.record_batch({
            "time": pyarrow.array(numpy.repeat(minutes, sensors), pyarrow.timestamp("ns")),
            "sensor": pyarrow.DictionaryArray.from_arrays(keys, names),
            "value": values,
        }))
    return pyarrow.Table.from_batches(batches)


def workload_files(options):
    """The workload as (table, Parquet file, CSV file), from --input or generated, kept in --work."""
    work = pathlib.Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    stem = work / f"sensors-{options.sensors}x{options.days}-{options.seed}"
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    if options.input:
        table = pyarrow.parquet.read_table(options.input)
        parquet = pathlib.Path(options.input)
        csv = work / (parquet.stem + ".csv")
    else:
        table = workload(options.sensors, options.days, options.seed)
        if not parquet.exists():
            pyarrow.parquet.write_table(table, parquet)
    if not csv.exists():
        pyarrow.csv.write_csv(table.set_column(1, "sensor", table["sensor"].cast(pyarrow.string())), csv, pyarrow.csv.WriteOptions(quoting_style="none"))
    return table, str(parquet), str(csv)


def add_options(parser, runs=3):
    parser.add_argument("--sensors", type=int, default=500)
    parser.add_argument("--days", type=int, default=14, help="14 days of 500 sensors are 10 million rows")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--input", help="Parquet file of the workload, instead of generating it")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "tidefall-peers"), help="scratch folder")


def version(package):
    return importlib.metadata.version(package)


def folder_bytes(path):
    """Bytes that a file or all files below a folder take on disk; those that go meanwhile take none."""
    files = [path] if os.path.isfile(path) else [os.path.join(folder, file) for folder, _, names in os.walk(path) for file in names]
    return sum(file_bytes(file) for file in files)


def file_bytes(path):
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def repeat(runs, work, action):
    """Runs `action(folder)` in a fresh folder each time after one run to warm up; the last folder is
    left for a look at its size. Gives the seconds of each run, a sync of the file system included."""
    folder = pathlib.Path(work) / "run"
    seconds = []
    for run in range(runs + 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.sync()
        start = time.perf_counter()
        action(str(folder))
        os.sync()
        if run:
            seconds.append(time.perf_counter() - start)
    return seconds, folder


def report(bench, system, version_, settings, runs, unit, **more):
    """Prints one result as a line of JSON; spread is (max - min) / median."""
    median = statistics.median(runs)
    line = {
        "bench": bench, "system": system, "version": version_, "settings": settings, "unit": unit,
        "runs": [round(run, 4) for run in runs], "median": round(median, 4),
        "spread": round((max(runs) - min(runs)) / median, 4) if median else 0.0, **more,
    }
    print(json.dumps(line), flush=True)

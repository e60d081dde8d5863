"""Threads read side by side, and answers may be larger than the memory that the database has."""

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import time

import numpy
import pandas
import pytest

import tidefall

MINUTES_PER_YEAR = 366 * 1440


@pytest.fixture
def plant(tmp_path):
    with tidefall.open(str(tmp_path / "db"), memory_mib=128) as db:
        times = pandas.date_range("2024-01-01", periods=MINUTES_PER_YEAR, freq="1min")
        random = numpy.random.default_rng(5)
        db.write_wide("plant", pandas.DataFrame({name: random.normal(300, 60, MINUTES_PER_YEAR).round(3) for name in "abcd"}, index=times))
        yield db.table("plant")


def seconds_of(action, threads, count):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(lambda _: action(), range(count)))
        return time.perf_counter() - start


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
@pytest.mark.parametrize("query", ["rows", "columns", "outliers"])
def test_four_threads_use_two_cores(plant, query):
    # One sensor at a time: the engine itself reads it with one thread.
    action = {
        "rows": lambda: plant.rows("a"),
        "columns": lambda: plant.columns("b"),
        "outliers": lambda: plant.rows("c", outside=(200, 400)),
    }[query]
    action()
    # The machine may be busy with something else; it is enough that it can be seen once.
    gains = [seconds_of(action, 1, 80) / seconds_of(action, 4, 80) for _ in range(6)]
    assert max(gains) > 1.4, f"four threads are at best {max(gains):.2f} times as fast as one"


def test_python_goes_on_while_a_query_runs(plant):
    # A median holds all of its values: those of two sensors fit the budget in any order in which they come.
    query = "SELECT sensor, median(value), stddev(value) FROM plant WHERE sensor IN ('a', 'b') GROUP BY sensor"
    counted = 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: plant._database.sql(query).to_dict())
        while not answer.done():
            counted += 1
            time.sleep(0.0005)
    assert counted > 5 and len(answer.result()["sensor"]) == 2


BUDGET_MIB = 64
# Times and values alone are ten times the budget; text for the sensors comes on top.
SENSORS = BUDGET_MIB * 10 * 2**20 // (16 * MINUTES_PER_YEAR) + 1
READ = """
    import resource, sys
    import tidefall
    peak_mib = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tidefall.open(sys.argv[1], memory_mib=int(sys.argv[2]), read_only=True) as db:
        plant = db.table("plant")
        db.sql("SELECT count(*) FROM plant").to_dict()
        before, rows, total = peak_mib(), 0, 0.0
        if sys.argv[3] == "sql":
            for batch in db.sql("SELECT sensor, time, value FROM plant"):
                rows += batch.num_rows
                total += batch.column(2).to_numpy().sum()
        else:
            for frame in plant.frames():
                rows += frame.values.size
                total += frame.values.sum()
        print(rows, total, peak_mib() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("large") / "db")
    times = pandas.date_range("2024-01-01", periods=MINUTES_PER_YEAR, freq="1min")
    total = 0.0
    with tidefall.open(folder, memory_mib=BUDGET_MIB) as db:
        for sensor in range(SENSORS):
            values = numpy.random.default_rng(sensor).normal(300, 60, MINUTES_PER_YEAR).round(3)
            total += values.sum()
            db.write_wide("plant", pandas.DataFrame({f"s{sensor:03}": values}, index=times))
    return folder, total


@pytest.mark.parametrize("way", ["sql", "frames"])
def test_an_answer_of_ten_times_the_budget_is_iterated(large, way):
    folder, expected = large
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(READ), folder, str(BUDGET_MIB), way], capture_output=True, text=True, check=True)
    rows, total, grown_mib = done.stdout.split()
    assert int(rows) == SENSORS * MINUTES_PER_YEAR
    assert float(total) == pytest.approx(expected, rel=1e-9)
    assert float(grown_mib) < 2 * BUDGET_MIB, f"{grown_mib} MiB for a budget of {BUDGET_MIB}"


LONG_ROWS, LONG_BYTES, ROWS_AT_ONCE = 9_000, 39_000, 300
LONG_TEXTS = """
    import random, resource, sys
    import tidefall
    rows, length, at_once, budget_mib = map(int, sys.argv[2:])
    peak_mib = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    noise = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length + rows))
    with tidefall.open(sys.argv[1], memory_mib=budget_mib) as db:
        write = lambda numbers: db.write("logs", {"time": list(numbers), "text": [noise[n : n + length] for n in numbers]}, time="time")
        write(range(1))
        before = peak_mib()
        for first in range(0, rows, at_once):
            write(range(first, first + at_once))
        db.cascade(to="long")
        read = 0
        for batch in db.sql("SELECT time, text FROM logs ORDER BY time"):
            for text in batch.column(1):
                assert text.as_py() == noise[read : read + length]
                read += 1
        print(read, peak_mib() - before)
"""


def test_long_texts_are_written_moved_and_read_within_the_budget(tmp_path):
    numbers = map(str, (LONG_ROWS, LONG_BYTES, ROWS_AT_ONCE, 2 * BUDGET_MIB))
    done = run(LONG_TEXTS, str(tmp_path / "db"), *numbers, check=True)
    read, grown_mib = done.stdout.split()
    assert int(read) == LONG_ROWS
    assert float(grown_mib) < 4 * BUDGET_MIB, f"{grown_mib} MiB for a budget of {2 * BUDGET_MIB}"


def run(script, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


FORK = """
    import os, sys
    import tidefall
    db = tidefall.open(sys.argv[1])
    row = lambda time: {"time": [time], "value": [1.0]}
    db.write("plant", row(1), time="time")
    plant, rows = db.table("plant"), db.sql("SELECT value FROM plant")
    if os.fork() == 0:
        for use in (db.tables, plant.rows, rows.to_dict, lambda: db.cascade(to="long"), lambda: db.write("plant", row(2), time="time")):
            try:
                use()
            except tidefall.ClosedError as error:
                assert "opened in process" in str(error), error
            else:
                raise AssertionError("it was used")
        assert "opened in process" in repr(db)
        rows.close()
        db.close()
        sys.exit(0)
    status = os.wait()[1]
    db.write("plant", row(3), time="time")
    print(status, rows.to_dict(), len(plant.rows()), flush=True)
    # One that does nothing but end.
    if os.fork() == 0:
        sys.exit(0)
    print(os.wait()[1])
    db.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_leaves_the_database_alone(tmp_path):
    folder = str(tmp_path / "db")
    done = run(FORK, folder)
    assert (done.returncode, done.stdout) == (0, "0 {'value': [1.0]} 2\n0\n"), done.stderr
    with tidefall.open(folder) as db:
        assert db.table("plant").rows().time.astype(int).tolist() == [1, 3]


WIDE = """
    import resource, sys
    import tidefall
    with tidefall.open(sys.argv[1], memory_mib=64) as db:
        # No two sensors have a time in common: 1.7 GB side by side.
        times = list(range(600 * 600))
        db.write("plant", {"time": times, "sensor": [str(time % 600) for time in times], "value": [1.0] * len(times)}, time="time", tags="sensor")
        plant = db.table("plant")
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * resource.getpagesize() + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        try:
            plant.rows()
        except tidefall.LimitError as error:
            print(error)
        print(plant.rows("7").values.size)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory of a process is bounded otherwise here")
def test_a_frame_for_which_there_is_no_memory_is_refused(tmp_path):
    done = run(WIDE, str(tmp_path / "db"))
    assert done.returncode == 0, done.stderr
    assert "360000 rows and 600 columns is too large" in done.stdout and done.stdout.endswith("\n600\n"), done.stdout


INTERRUPT = """
    import os, signal, sys, threading, time
    import tidefall
    with tidefall.open(sys.argv[1]) as db:
        db.write("plant", {"time": list(range(500_000)), "value": [1.0] * 500_000}, time="time")
        endless = "SELECT sum(a.value * b.value) FROM plant a CROSS JOIN plant b"
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            db.sql(endless).to_dict()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin < 30, db.sql("SELECT count(*) AS n FROM plant").to_dict())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise here")
def test_ctrl_c_ends_a_query(tmp_path):
    done = run(INTERRUPT, str(tmp_path / "db"))
    assert (done.returncode, done.stdout) == (0, "interrupted True {'n': [500000]}\n"), done.stderr


def test_a_database_stays_where_it_was_opened(tmp_path, monkeypatch):
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(there)
    db = tidefall.open("db")
    db.write("t", {"time": [1], "value": [1.0]}, time="time")
    monkeypatch.chdir(elsewhere)
    db.write("t", {"time": [2], "value": [2.0]}, time="time")
    db.cascade("t", to="long")
    assert db.table("t").rows().values.tolist() == [[1.0, 2.0]]
    db.close()
    assert not list(elsewhere.iterdir())
    with tidefall.open(there / "db") as db:
        assert db.table("t").rows().values.tolist() == [[1.0, 2.0]]

"""Answers of a server that are not read to their end: the connection goes, and the query with it."""

import gc
import json
import os
import socket
import threading
import time

import pyarrow
import pytest

import tidefall
from served import Served

LONG = "SELECT value, repeat('x', 100) AS x FROM generate_series(1, 50000000)"
# Holds a large part of what all queries of the server may hold together, also while it waits for its reader.
JOIN = """SELECT a.value, b.x FROM (SELECT value, repeat('x', 180) AS x FROM generate_series(0, 49999)) b
    JOIN generate_series(1, 50000000) a ON b.value = a.value % 50000"""
# The server drops a query soon after its connection has gone, and 300 seconds later when nobody reads it.
SECONDS_MAX = 60
ROUNDS = 6
CLIENTS = 80


def close(rows):
    for _ in rows:
        break
    rows.close()


def leave_the_loop(rows):
    for _ in rows:
        break


def fail_in_the_loop(rows):
    with pytest.raises(ZeroDivisionError):
        for _ in rows:
            1 / 0


def let_go(rows):
    pass


def leave_what_was_handed_over(rows):
    pyarrow.RecordBatchReader.from_stream(rows).read_next_batch()


def let_go_of_what_was_handed_over(rows):
    rows.__arrow_c_stream__()


def read_in_another_thread(rows):
    thread = threading.Thread(target=leave_the_loop, args=(rows,))
    thread.start()
    thread.join()


ENDS = [close, leave_the_loop, fail_in_the_loop, let_go, leave_what_was_handed_over, let_go_of_what_was_handed_over, read_in_another_thread]


@pytest.fixture
def served(tmp_path):
    served = Served(str(tmp_path / "db"), "--memory", "64MiB")
    yield served
    served.stop()


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def sockets():
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except OSError:
            pass
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sockets cannot be counted")
@pytest.mark.parametrize("tz", [None, "Europe/Berlin"])
@pytest.mark.parametrize("end", ENDS)
def test_no_connection_stays(served, without_collector, end, tz):
    with tidefall.connect(served.address, tz=tz) as db:
        before = sockets()
        for _ in range(5):
            end(db.sql(LONG))
            # The connection that stands idle before it was taken for the answer.
            assert sockets() <= before
        assert db.sql("SELECT 1 AS one").to_dict() == {"one": [1]}


@pytest.mark.parametrize("end", ENDS)
def test_the_memory_of_a_query_is_free_again(served, without_collector, end):
    with tidefall.connect(served.address) as db:
        for _ in range(ROUNDS):
            deadline = time.monotonic() + SECONDS_MAX
            while True:
                try:
                    end(db.sql(JOIN))
                    break
                except tidefall.LimitError:
                    assert time.monotonic() < deadline, "the query before holds its memory"
                    time.sleep(0.1)


def test_an_open_answer_holds_what_the_next_one_needs(served):
    """Or the test above says nothing."""
    with tidefall.connect(served.address) as db:
        answers = []
        with pytest.raises(tidefall.LimitError):
            for _ in range(ROUNDS):
                answers.append(iter(db.sql(JOIN)))
                next(answers[-1])


def test_an_answer_that_is_read_leaves_its_connection(served, monkeypatch):
    with tidefall.connect(served.address) as db:
        kept = db._core.server.local.connection
        assert sum(batch.num_rows for batch in db.sql("SELECT * FROM generate_series(1, 100000)")) == 100_000
        with pytest.raises(tidefall.InvalidError):
            db.sql("SELEC 1")
        assert db.sql("SELECT 1 AS one").to_dict() == {"one": [1]}
        assert pyarrow.table(db.sql("SELECT 1 AS one")).num_rows == 1
        assert db._core.server.local.connection is kept
        rows = db.sql("SELECT * FROM generate_series(1, 100000)")
        rows.to_arrow()
        rows.close()
        assert db._core.server.local.connection is kept and kept.sock is not None


def resident_mib(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def ask_and_not_read(served, question):
    host, port = served.address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"POST /api/v1/frames HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(question)}\r\n\r\n"
    client.sendall(head.encode() + question)
    return client


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the memory of a process is not told")
def test_frames_that_are_not_read_take_little_memory(served):
    sensors, rows = 5_000, 400
    names = pyarrow.array([f"s{at}" for at in range(sensors)])
    for first in range(0, rows, 100):
        times = [second * 1_000_000_000 for second in range(first, first + 100) for _ in range(sensors)]
        which = pyarrow.array(list(range(sensors)) * 100, pyarrow.int32())
        table = pyarrow.table({
            "time": pyarrow.array(times, pyarrow.timestamp("ns")),
            "s": pyarrow.DictionaryArray.from_arrays(which, names),
            "v": [float(at) for at in range(sensors * 100)],
        })
        served.client.write("many", table, tags=["s"])
    # Once, so that what a server holds for good is there.
    assert len(served.client.table("many").rows(field="v")) == rows
    before = resident_mib(served.process)
    question = json.dumps({"table": "many", "field": "v", "ask": {"frame": None}}).encode()
    clients = [ask_and_not_read(served, question) for _ in range(CLIENTS)]
    most = 0
    for _ in range(40):
        time.sleep(0.1)
        most = max(most, resident_mib(served.process))
    # 16 MB each is what they asked for.
    assert most < before + 200, f"{most} MiB, {before} before"
    # One that reads gets all of it.
    assert served.client.table("many").rows(field="v").to_numpy().shape == (rows, sensors)
    [client.close() for client in clients]

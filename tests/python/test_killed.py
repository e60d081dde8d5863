"""What was written stays when the process is killed at once: also what came before an error."""

import subprocess
import sys
import textwrap

import pytest

import tidefall

PIECE = 1 << 17
# A piece, a second one, and a third in which something is wrong.
ROWS = 3 * PIECE

BEGIN = f"""
import os, sys
import numpy, pyarrow, tidefall
PIECE, ROWS = {PIECE}, {ROWS}
SCHEMA = pyarrow.schema([("time", pyarrow.timestamp("ns")), ("sensor", pyarrow.string()), ("value", pyarrow.float64())])
def part(first, rows, value=0.5):
    time = pyarrow.array(numpy.arange(first, first + rows) * 10**9, pyarrow.timestamp("ns"))
    return pyarrow.record_batch([time, pyarrow.array(["a"] * rows), pyarrow.array(numpy.full(rows, value))], schema=SCHEMA)
def parts(last=None):
    yield part(0, PIECE, 1.0)
    yield part(PIECE, PIECE, 2.0)
    if last is None:
        raise ValueError("the source broke")
    yield last
def stream(last=None):
    return pyarrow.RecordBatchReader.from_batches(SCHEMA, parts(last))
db = tidefall.open(sys.argv[1])
def write(data, **options):
    try:
        return db.write("plant", data, tags="sensor", **options)
    except tidefall.Error as error:
        print(type(error).__name__, error, flush=True)
"""

END = """
print(db.sql("SELECT count(*) FROM plant").to_arrow().column(0)[0].as_py(), flush=True)
os._exit(9)
"""

# What is written, and the error.
CASES = {
    "all": ("write(stream(part(2 * PIECE, PIECE)))", None, ROWS),
    "refused": ("write(part(ROWS - 5, 1)); write(stream(part(2 * PIECE, PIECE)), existing='refuse')", "ConflictError of the rows from 262145 on: ", 2 * PIECE + 1),
    "misfit": ("db.write('plant', {'time': numpy.zeros(1, 'M8[ns]'), 'sensor': ['a'], 'value': [2**53 + 1]}, tags='sensor'); write(stream(part(2 * PIECE, PIECE, 0.5)))", "ConflictError of the rows from 262145 on: ", 2 * PIECE),
    # What was read before is written.
    "source": ("write(stream())", "InvalidError of the rows from 262145 on: ", 2 * PIECE),
    "no time": ("times = numpy.arange(PIECE + 9).astype('M8[s]'); times[PIECE + 2] = 'NaT'; write({'time': times, 'sensor': 'a', 'value': numpy.zeros(PIECE + 9)})", "InvalidError of the rows from 131073 on: row 3", PIECE),
    "one piece": ("write(part(7, 1)); write(part(0, 10), existing='refuse')", "ConflictError table plant: ", 1),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_killed_process_has_written_stays(tmp_path, name):
    script, error, rows = CASES[name]
    folder = str(tmp_path / "db")
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(BEGIN + script + END), folder], capture_output=True, text=True, timeout=300)
    assert run.returncode == 9, run.stderr
    said = run.stdout.splitlines()
    assert int(said[-1]) == rows
    if error is not None:
        assert said[0].startswith(error), said[0]
    with tidefall.open(folder) as db:
        assert db.sql("SELECT count(*) FROM plant").to_arrow().column(0)[0].as_py() == rows

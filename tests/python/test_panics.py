"""A fault of the program in the middle of a call is a `tidefall.Error`, and the database goes on."""

import subprocess
import sys

import pyarrow
import pytest

import tidefall

PANICS = "SELECT CASE WHEN panic_where(value = 30) THEN 0 ELSE value END AS v FROM generate_series(1, 30)"
# The first rows may be there before the fault.
LATER = f"SELECT value AS v FROM generate_series(1, 1000000) UNION ALL {PANICS}"


@pytest.fixture
def db(tmp_path):
    with tidefall.open(str(tmp_path / "db")) as db:
        if db.sql("SELECT 1 FROM information_schema.routines WHERE routine_name = 'panic_where'").to_arrow().num_rows == 0:
            pytest.skip("faults on purpose are only in builds with debug assertions")
        yield db
        assert db.sql("SELECT 1 AS one").to_dict() == {"one": [1]}
        assert db.write("plant", {"time": [1], "value": [1.5]}, time="time") == 1


def check(error):
    assert type(error.value) is tidefall.Error
    assert "bug of Tidefall" in str(error.value)


def test_a_panic_of_a_query_is_an_error(db):
    with pytest.raises(tidefall.Error) as error:
        db.sql(PANICS).to_arrow()
    check(error)


def test_a_panic_in_the_middle_of_an_answer_is_an_error(db):
    with pytest.raises(tidefall.Error) as error:
        for _ in db.sql(LATER):
            pass
    check(error)


@pytest.mark.parametrize("query", [PANICS, LATER])
def test_a_panic_below_another_library_does_not_end_the_process(tmp_path, query):
    script = f"""
import pyarrow, sys, tidefall
db = tidefall.open(sys.argv[1])
try:
    pyarrow.RecordBatchReader.from_stream(db.sql({query!r})).read_all()
except Exception as error:
    print("caught", error)
print(db.sql("SELECT 1 AS one").to_dict())
"""
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path / "db")], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("caught") and run.stdout.endswith("{'one': [1]}\n"), run.stdout

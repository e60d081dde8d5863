"""A process that reads a database which another one writes, and may be killed meanwhile."""

import numpy
import pyarrow
import pytest

import tidefall
from served import Served

ROUNDS = 30
ROWS = 500


def piece(number):
    time = (numpy.arange(ROWS) + number * ROWS).astype("M8[s]")
    return {"time": time, "sensor": [f"s{row % (number + 3)}" for row in range(ROWS)], "value": numpy.arange(ROWS) * 1.5}


def test_a_reader_shows_what_a_server_has_written_also_when_it_is_killed(tmp_path):
    folder = str(tmp_path / "plant")
    served = Served(folder)
    served.client.write("plant", piece(0), tags="sensor")
    count = lambda db: db.sql("SELECT count(*), count(DISTINCT sensor), max(time) FROM plant").to_arrow().to_pylist()
    with tidefall.open(folder, read_only=True) as reader:
        assert not served.client.refresh()
        for number in range(1, ROUNDS):
            before = count(reader)
            begun = reader.sql("SELECT value FROM plant")
            served.client.write("plant", piece(number), tags="sensor")
            if number % 5 == 4:
                made, more = "CREATE TABLE later (time TIMESTAMP, v BIGINT)", f"INSERT INTO later VALUES (to_timestamp_seconds({number}), 1)"
                served.client.sql(more if number > 4 else made)
            if number % 7 == 6:
                served.process.kill()
                served.process.wait()
                assert count(reader) == before
                served = Served(folder)
            assert count(reader) == before
            assert reader.refresh()
            assert not reader.refresh()
            found = count(reader)
            assert found == count(served.client)
            assert found[0]["count(*)"] == (number + 1) * ROWS
            assert begun.to_arrow().num_rows == number * ROWS
            assert reader.tables() == served.client.tables()
        assert len(reader.table("plant").sensors()["sensor"]) == ROUNDS + 2
        with pytest.raises(tidefall.UnsupportedError, match="only for reading"):
            reader.write("plant", piece(0), tags="sensor")
    served.stop()


def test_a_database_that_is_written_here_is_as_it_is(tmp_path):
    with tidefall.open(tmp_path / "plant") as db:
        db.write("plant", pyarrow.table({"time": pyarrow.array([1], pyarrow.timestamp("s")), "value": [1.5]}))
        assert not db.refresh()
        assert len(db.sql("SELECT * FROM plant").to_arrow()) == 1

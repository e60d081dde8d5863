"""Fields of times: what is written as one comes back as one."""

import numpy
import pandas
import pyarrow

import tidefall


def test_fields_of_times_come_back(tmp_path):
    time = pandas.date_range("2024-01-01", periods=3, freq="h")
    seen = pandas.to_datetime(["2023-12-31 23:59:59.123456789", None, "1969-07-20 20:17"], format="ISO8601")
    frame = pandas.DataFrame({"time": time, "s": ["a", "b", "a"], "seen": seen, "zoned": seen.tz_localize("Europe/Berlin")})
    with tidefall.open(str(tmp_path / "db")) as db:
        db.write("t", frame, tags=["s"])
        for place in (None, "short", "long"):
            if place:
                db.cascade("t", to=place)
            back = db.sql("SELECT seen, zoned FROM t ORDER BY time").to_pandas()
            assert back.seen.dtype == numpy.dtype("datetime64[ns]")
            pandas.testing.assert_series_equal(back.seen, frame.seen, check_freq=False)
            utc = frame.zoned.dt.tz_convert("UTC").dt.tz_localize(None)
            pandas.testing.assert_series_equal(back.zoned, utc, check_freq=False)
            summary = db.sql("SELECT count(seen) AS n, min(seen) AS low, max(seen) AS high, last(seen, time) AS last FROM t").to_pandas()
            assert summary.iloc[0].tolist() == [2, seen[2], seen[0], seen[2]]
        table = db.sql("SELECT seen FROM t ORDER BY time").to_arrow()
        assert table.schema.field("seen").type == pyarrow.timestamp("ns")


def test_numpy_times_of_any_unit_are_fields(tmp_path):
    at = numpy.array(["2024-01-01T12:00:00.5", "NaT"], dtype="datetime64[ms]")
    with tidefall.open(str(tmp_path / "db")) as db:
        db.write("t", {"time": numpy.array([0, 1], dtype="datetime64[s]"), "at": at, "v": [1.5, 2.5]})
        assert db.sql("SELECT arrow_typeof(at) AS t FROM t LIMIT 1").to_dict()["t"] == ["Timestamp(ns)"]
        back = db.sql("SELECT at FROM t ORDER BY time").to_pandas()["at"]
        assert back[0] == pandas.Timestamp("2024-01-01T12:00:00.5") and pandas.isna(back[1])

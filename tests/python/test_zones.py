"""Times are moments; with `tz` they come back in a zone."""

import datetime

import numpy
import pandas
import pandas.testing
import polars
import pyarrow
import pytest

import tidefall
from served import Served


@pytest.fixture
def frame():
    times = pandas.date_range("2024-03-31", periods=48, freq="1h", tz="Europe/Berlin", name="time")
    return pandas.DataFrame({"a": numpy.arange(48.0), "b": numpy.arange(48.0) / 2}, index=times)


def check_zone(db, frame, tz):
    plant = db.table("plant")
    there = frame.tz_convert("UTC").tz_localize(None) if tz is None else frame.tz_convert(tz)
    rows = plant.rows()
    pandas.testing.assert_frame_equal(rows.to_pandas(), there, check_freq=False)
    assert rows.time.dtype == "M8[ns]" and rows.time[0] == numpy.datetime64("2024-03-30T23:00")
    type_ = pyarrow.timestamp("ns", tz)
    for answer in (rows, plant.latest(), plant.resample("1h"), plant.resample("2h", ["mean", "max"])):
        assert answer.to_arrow().schema.field("time").type == type_
        assert (answer.to_polars().schema["time"].time_zone is None) == (tz is None)
    assert plant.columns().to_arrow().schema.field("time").type.value_type == type_
    assert plant.columns().to_pandas()["time"].tolist() == [*there.index, *there.index]
    assert plant.latest().to_pandas()["time"].tolist() == [there.index[-1]] * 2
    assert plant.resample("1h").to_pandas().index.equals(there.index)

    query = "SELECT time, value FROM plant WHERE sensor = 'a' ORDER BY time"
    for rows in (db.sql(query), db.sql(query)):
        assert rows.schema.field("time").type == type_
        first = next(iter(rows))
        assert first.schema == rows.schema and first.column(0)[0].value == frame.index[0].value
    pandas.testing.assert_frame_equal(db.sql(query).to_pandas().set_index("time"), there[["a"]].rename(columns={"a": "value"}), check_freq=False)
    assert (polars.DataFrame(db.sql(query)).schema["time"].time_zone is None) == (tz is None)
    assert pyarrow.table(db.sql(query)).schema.field("time").type == type_
    # What has a zone in SQL keeps it.
    assert db.sql("SELECT time AT TIME ZONE 'Asia/Tokyo' AS there FROM plant").schema.field("there").type.tz == "Asia/Tokyo"


@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin", datetime.timezone.utc])
def test_what_was_written_with_a_zone_comes_back_with_one(tmp_path, frame, tz):
    folder, name = str(tmp_path / "db"), "UTC" if tz is datetime.timezone.utc else tz
    with tidefall.open(folder, tz=tz) as db:
        db.write_wide("plant", frame)
        check_zone(db, frame, name)
    served = Served(folder)
    try:
        with tidefall.connect(served.address, tz=tz) as db:
            check_zone(db, frame, name)
            # A frame that came from it goes back as it is.
            written = db.write_wide("plant", db.table("plant").rows().to_pandas())
            assert (written, written.replaced) == (96, 96)
    finally:
        served.stop()


def test_zones_that_are_none(tmp_path):
    for tz in ("Mars/Olympus", "", 5):
        with pytest.raises(tidefall.InvalidError, match="no zone"):
            tidefall.open(str(tmp_path / "db"), tz=tz)
    assert not (tmp_path / "db").exists()

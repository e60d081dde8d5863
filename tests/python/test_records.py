"""Tables of records: written as frames, asked for by boxes, the same in this process and behind a server."""

import numpy
import pandas
import pytest

import tidefall
from test_same import both  # noqa: F401  (a fixture)

MADE = """CREATE TABLE trips (lat DOUBLE, at TIMESTAMP, seats TINYINT, fare DOUBLE, note TEXT)
          WITH (model = 'records', index = '(lat, at, seats)')"""
ROWS = 5_000


def trips(random):
    """Some rows, as a frame."""
    return pandas.DataFrame({
        "lat": random.normal(40.7, 0.1, ROWS).round(4),
        "at": pandas.Timestamp("2013-01-01") + pandas.to_timedelta(random.integers(0, 10**6, ROWS), unit="s"),
        "seats": random.integers(1, 7, ROWS),
        "fare": numpy.where(random.random(ROWS) < 0.1, numpy.nan, random.random(ROWS) * 50),
        "note": random.choice(["", "a", "naïve"], ROWS),
    })


def test_boxes_have_the_rows_of_the_frame(both):  # noqa: F811
    frame = trips(numpy.random.default_rng(5))
    day = pandas.Timestamp("2013-01-05")
    boxes = [
        ({}, frame),
        ({"lat": (40.65, 40.72)}, frame[frame.lat.between(40.65, 40.72)]),
        ({"lat": (None, 40.7), "seats": [1, 6], "at": (day, None)}, frame[(frame.lat <= 40.7) & frame.seats.isin([1, 6]) & (frame["at"] >= day)]),
        ({"seats": 3, "note": "a"}, frame[(frame.seats == 3) & (frame.note == "a")]),
        ({"seats": []}, frame[:0]),
    ]
    for db in both:
        db.sql(MADE)
        table = db.records("trips")
        assert int(table.write(frame[:100])) == 100
        assert list(db.table("trips").fields) == db.sql("DESCRIBE trips").to_arrow().column("column").to_pylist()
        assert int(table.write(frame[100:])) == ROWS - 100
        for box, expected in boxes:
            assert table.count(**box) == len(expected), box
            found = table.range(**box).to_pandas().astype({"seats": "int64"})
            order = list(frame.columns)
            expected = expected.sort_values(order).reset_index(drop=True)
            found = found.sort_values(order).reset_index(drop=True)
            pandas.testing.assert_frame_equal(found, expected, check_dtype=False, check_column_type=False)
        assert table.range("fare", limit=7, seats=2).to_arrow().shape == (7, 1)


def test_neighbours_are_those_of_the_frame(both):  # noqa: F811
    frame = trips(numpy.random.default_rng(6))
    hour = pandas.Timedelta("1h")
    for db in both:
        table = db.records("trips")
        table.write(frame[:10].astype({"seats": "int8"}), index=["lat", "at", "seats"])
        table.write(frame[10:])
        assert "index = '(lat, at, seats)'" in str(db.sql("SHOW CREATE TABLE trips").to_dict())
        at = pandas.Timestamp("2013-01-06")
        for point, lengths, box, some in [
            ({"lat": 40.7}, {"lat": frame.lat - 40.7}, {}, frame.lat == frame.lat),
            ({"lat": (40.75, 0.01), "at": (at, hour)}, {"lat": (frame.lat - 40.75) / 0.01, "at": (frame["at"] - at) / hour}, {"seats": [1, 2]}, frame.seats < 3),
        ]:
            expected = numpy.sqrt(sum(length**2 for length in lengths.values()))[some].sort_values()[:20]
            found = table.nearest(20, point, ["lat", "note"], **box).to_pandas()
            assert list(found.columns) == ["lat", "note", "distance"]
            numpy.testing.assert_allclose(found["distance"], expected, rtol=1e-9)
        assert table.nearest(0, {"lat": 1}).to_arrow().num_rows == 0
        with pytest.raises(tidefall.NotFoundError, match="fare is not a dimension of trips"):
            table.nearest(1, {"fare": 1})


def test_wrong_records_are_refused(both):  # noqa: F811
    for db in both:
        db.sql(MADE)
        table = db.records("trips")
        with pytest.raises(tidefall.InvalidError, match='row 2.*"lat" is a dimension'):
            table.write({"lat": [1.0, None], "at": "2013-01-01", "seats": 1})
        with pytest.raises(tidefall.InvalidError, match="two ends"):
            table.count(lat=(1, 2, 3))
        with pytest.raises(tidefall.InvalidError, match="no time and no tags"):
            db.write("trips", {"lat": [1.0], "at": "2013-01-01", "seats": 1}, tags="note")
        for ask in (lambda none: none.count(), lambda none: none.write({"lat": [1.0]}), lambda none: none.nearest(1, {"lat": 1})):
            with pytest.raises(tidefall.NotFoundError, match="none"):
                ask(db.records("none"))
        assert table.count() == 0

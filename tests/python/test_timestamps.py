"""Fields of times: what is written as one comes back as one."""

import datetime

import numpy
import pandas
import pandas.testing
import polars
import pyarrow
import pytest

import tidefall
from served import Served


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

SEEN = pandas.to_datetime(["2023-12-31 23:59:59.123456789", None, "1969-07-20 20:17", None, "2262-04-11 23:47:16", "2024-03-31 02:30"], format="ISO8601")
MICROS = SEEN.as_unit("us")


def frames():
    """The same readings in every form, with a second column of times, without a zone and with one."""
    times = pandas.date_range("2024-01-01", periods=3, freq="h").repeat(2)
    plain = pandas.DataFrame({"time": times, "s": ["a", "b"] * 3, "seen": MICROS})
    berlin = plain.assign(seen=MICROS.tz_localize("UTC").tz_convert("Europe/Berlin"))
    return {
        "pandas": plain, "pandas, with a zone": berlin, "pandas of seconds": plain.assign(seen=MICROS.as_unit("s")),
        "pandas objects": plain.assign(seen=pandas.Series(list(MICROS), dtype=object)),
        "polars": polars.from_pandas(plain), "polars, with a zone": polars.from_pandas(berlin),
        "polars of milliseconds": polars.from_pandas(plain).with_columns(polars.col("seen").cast(polars.Datetime("ms"))),
        "Arrow": pyarrow.Table.from_pandas(plain), "Arrow, with a zone": pyarrow.Table.from_pandas(berlin),
        "Arrow, encoded": pyarrow.table({**{name: pyarrow.Table.from_pandas(plain)[name] for name in ("time", "s")}, "seen": pyarrow.array(MICROS.to_numpy()).dictionary_encode()}),
        "a dictionary": {"time": times.to_numpy(), "s": ["a", "b"] * 3, "seen": [None if instant is pandas.NaT else instant for instant in MICROS.to_pydatetime()]},
    }


@pytest.fixture(params=["in this process", "behind a server"])
def db(request, tmp_path):
    if request.param == "in this process":
        with tidefall.open(str(tmp_path / "db")) as db:
            yield db
    else:
        served = Served(str(tmp_path / "db"))
        try:
            yield served.client
        finally:
            served.stop()


def floor(form):
    unit = {"pandas of seconds": "s", "polars of milliseconds": "ms"}.get(form)
    return MICROS.as_unit(unit).as_unit("ns") if unit else MICROS.as_unit("ns")


@pytest.mark.parametrize("form", frames())
def test_frames_of_every_kind_have_fields_of_times(db, form):
    seen = floor(form)
    a, b = seen[0::2], seen[1::2]
    assert db.write("t", frames()[form], time="time", tags="s") == 6
    table = db.table("t")
    assert table.fields == {"seen": "TIMESTAMP"}
    rows = table.rows()
    assert rows.values.dtype == "M8[ns]" and rows.missing == 2
    numpy.testing.assert_array_equal(rows.values, [a.to_numpy(), b.to_numpy()])
    assert rows.to_pandas()["a"].tolist() == list(a)
    assert rows.to_arrow().schema.field("a").type == pyarrow.timestamp("ns") and rows.to_arrow()["b"].null_count == 2
    columns = table.columns(["b"])
    numpy.testing.assert_array_equal(columns.series[0][1], b.to_numpy())
    assert columns.to_pandas()["value"].dtype == columns.to_arrow().to_pandas()["value"][0].dtype == "M8[ns]"
    assert table.latest().to_dict() == {"a": a[2].to_datetime64(), "b": b[2].to_datetime64()}
    assert table.latest().to_pandas()["value"].tolist() == [a[2], b[2]]
    assert table.at("2024-01-01").to_dict() == {"a": a[0].to_datetime64()}
    assert table.resample("1d", "count").to_dict()["b"].tolist() == [1.0]
    for question in (lambda: table.resample("1d", "mean"), table.lowest, lambda: table.rows(between=(0, 1))):
        with pytest.raises(tidefall.UnsupportedError, match='"seen" holds no numbers'):
            question()
    back = db.sql("SELECT s, seen FROM t ORDER BY time, s").to_pandas()
    pandas.testing.assert_series_equal(back.seen, pandas.Series(seen, name="seen"), check_freq=False)


def test_wide_frames_of_times(db):
    index = pandas.date_range("2024-01-01", periods=3, freq="h")
    wide = pandas.DataFrame({"a": MICROS[:3], "b": MICROS[:3].tz_localize("Asia/Tokyo"), "c": [None, pandas.Timestamp("2024-01-01").date(), None]}, index=index)
    assert db.write_wide("w", wide) == 5
    rows = db.table("w").rows()
    expected = [MICROS[:3], MICROS[:3].tz_localize("Asia/Tokyo").tz_convert(None), pandas.to_datetime([None, "2024-01-01", None])]
    numpy.testing.assert_array_equal(rows.values[:, 0], [column[0].to_datetime64() for column in expected])
    assert rows.to_pandas().isna().sum().tolist() == [1, 1, 2]
    # What came back goes in as it is.
    written = db.write_wide("w", rows.to_pandas())
    assert (written, written.replaced) == (5, 5)
    with pytest.raises(tidefall.InvalidError, match="'a' is of type timestamp.*'n' of type int64"):
        db.write_wide("mixed", wide[["a"]].assign(n=1))
    assert db.tables() == ["w"]


def test_fields_of_times_have_the_zone_too(tmp_path):
    folder = str(tmp_path / "db")
    def check(db):
        table, zone = db.table("t"), "Europe/Berlin"
        local = MICROS.as_unit("ns").tz_localize("UTC").tz_convert(zone)
        a = local[0::2].tolist()
        type_ = pyarrow.timestamp("ns", zone)
        assert table.rows().to_pandas()["a"].tolist() == a and table.rows().to_arrow().schema.field("a").type == type_
        assert table.rows(["nobody"]).to_pandas().shape == (0, 0)
        assert table.columns("a").to_pandas()["value"].tolist() == a and table.columns().to_arrow().schema.field("value").type.value_type == type_
        assert table.latest("a").to_pandas()["value"].tolist() == a[2:] and table.latest().to_arrow().schema.field("value").type == type_
        assert db.sql("SELECT seen FROM t").schema.field("seen").type == type_
        assert table.rows().values.dtype == "M8[ns]" and table.rows().values[0, 0] == local[0].to_datetime64()
    with tidefall.open(folder, tz="Europe/Berlin") as db:
        db.write("t", frames()["polars, with a zone"], time="time", tags="s")
        check(db)
    served = Served(folder)
    try:
        with tidefall.connect(served.address, tz="Europe/Berlin") as db:
            check(db)
    finally:
        served.stop()


def test_times_out_of_reach_are_named(db):
    frame = pandas.DataFrame({"time": pandas.date_range("2024-01-01", periods=2, freq="h"), "seen": numpy.array(["2024-01-01", "3000-01-01"], "M8[s]")})
    with pytest.raises(tidefall.InvalidError, match="seen"):
        db.write("t", frame, time="time")
    assert db.tables() == []


def test_periods_are_their_beginnings(db):
    months = pandas.period_range("2024-01", periods=3, freq="M")
    assert db.write("t", pandas.DataFrame({"day": pandas.period_range("2024-05-01", periods=3, freq="D"), "v": [1, 2, 3]}, index=months)) == 3
    table = db.table("t")
    assert table.fields == {"day": "TIMESTAMP", "v": "BIGINT"}
    pandas.testing.assert_index_equal(table.rows(field="v").to_pandas().index, months.to_timestamp(), check_names=False, exact="equiv")
    assert table.latest(field="day").to_dict() == {"value": numpy.datetime64("2024-05-03")}
    assert db.write_wide("w", pandas.DataFrame({"a": [1.0, 2.0, 3.0]}, index=months)) == 3
    assert db.table("w").rows().time.tolist() == months.to_timestamp().to_numpy().tolist()
    with pytest.raises(tidefall.InvalidError):
        db.write("t", pandas.DataFrame({"v": [1]}, index=pandas.PeriodIndex(["3000-01"], freq="M")))


def test_objects_of_pandas_keep_their_nanoseconds(db):
    instants = [pandas.Timestamp(123), pandas.Timestamp(456)]
    column = pandas.Series(instants, dtype=object)
    forms = {"a list": instants, "a tuple": tuple(instants), "an iterator": iter(instants), "objects of numpy": column.to_numpy(), "objects of pandas": column,
             "with a zone": [instant.tz_localize("UTC").tz_convert("Asia/Tokyo") for instant in instants]}
    frames = {form: {"time": times, "seen": [instants[1], None], "took": [pandas.Timedelta(7), None]} for form, times in forms.items()}
    frames["a frame"] = pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in frames["a list"].items()})
    frames["a frame of several offsets"] = pandas.DataFrame({
        "time": pandas.Series([instants[0].tz_localize("UTC").tz_convert("+01:00"), instants[1].tz_localize("UTC").tz_convert("+02:00")], dtype=object),
        "seen": pandas.Series([instants[1], pandas.NaT], dtype=object), "took": pandas.Series([pandas.Timedelta(7), pandas.NaT], dtype=object)})
    for form, frame in frames.items():
        written = db.write(form, frame)
        assert (form, written, written.replaced) == (form, 2, 0)
        table = db.table(form)
        assert table.rows(field="seen").time.astype(int).tolist() == [123, 456]
        assert table.latest(field="seen").to_dict() == {"value": numpy.datetime64(456, "ns")} and table.latest(field="took").to_dict() == {"value": 7}
    wide = pandas.DataFrame({"a": [pandas.Timedelta(7), pandas.Timedelta(8)], "b": pandas.Series([pandas.Timedelta(9), None], dtype=object), "time": column})
    assert db.write_wide("wide", wide) == 3
    assert db.table("wide").latest().to_dict() == {"a": 8, "b": 9}


def test_objects_of_pandas_that_nanoseconds_do_not_reach_are_refused(db):
    far = pandas.Timestamp("3000-01-01")
    for times in ([pandas.Timestamp(7), far], pandas.Series([pandas.Timestamp(7), far], dtype=object), [far, pandas.Timestamp(7)]):
        for data in ({"time": times, "v": [1.0, 2.0]}, pandas.DataFrame({"time": times, "v": [1.0, 2.0]})):
            with pytest.raises(tidefall.InvalidError, match="3000-01-01 00:00:00 lies outside of 1677"):
                db.write("t", data)
    with pytest.raises(tidefall.InvalidError, match="took"):
        db.write("t", {"time": [pandas.Timestamp(7), pandas.Timestamp(8)], "took": [pandas.Timedelta(7), datetime.timedelta(days=200_000)]})
    assert db.tables() == []
    ends = [pandas.Timestamp.min, pandas.Timestamp.max]
    assert db.write("t", {"time": ends, "v": [1.0, 2.0]}) == 2
    assert db.table("t").rows().time.tolist() == [end.value for end in ends]


def test_dictionaries_take_what_frames_take(db):
    times = pandas.date_range("2024-01-01", periods=2, freq="h")
    months = pandas.period_range("2024-01", periods=2, freq="M")
    columns = {
        "index": months, "series": pandas.Series(months), "array": months.array, "sparse": pandas.arrays.SparseArray([0, 5]),
        "gap": [pandas.NaT, pandas.Timestamp(7)], "zoned": [pandas.NaT, pandas.Timestamp(7, tz="Asia/Tokyo")], "took": [pandas.NaT, pandas.Timedelta(7)],
        "count": [pandas.NA, 5], "note": [float("nan"), "x"], "hours": numpy.array([5, 6], "m8[h]"), "days": numpy.array(["NaT", 6], "m8[D]"), "fine": numpy.array([0, 6000], "m8[ps]"),
        "one": numpy.timedelta64(1, "W"), "nothing": pandas.NaT,
    }
    assert db.write("t", {"time": times, **columns}) == 2
    february, at = numpy.datetime64("2024-02-01"), numpy.datetime64(7, "ns")
    hour = 3600 * 10**9
    expected = {"index": february, "series": february, "array": february, "sparse": 5, "gap": at, "zoned": at, "took": 7, "count": 5, "note": "x", "hours": 6 * hour, "days": 144 * hour, "fine": 6, "one": 168 * hour}
    table = db.table("t")
    assert {name: table.latest(field=name).to_dict()["value"] for name in table.fields} == expected
    assert [len(table.at(times[0], field=name)) for name in ("gap", "zoned", "took", "count", "note", "days")] == [0] * 6
    assert db.write("by month", {"time": months, "v": [1, 2]}) == 2
    assert db.table("by month").rows().time.tolist() == months.to_timestamp().to_numpy().tolist()
    for far, said in ((numpy.array([1, 10**6], "m8[D]"), "length of time 1000000 days"), (pandas.PeriodIndex(["3000-01"] * 2, freq="M"), "3000"), (numpy.array([1, 2], "m8[M]"), "unit")):
        with pytest.raises(tidefall.InvalidError, match=said):
            db.write("far", {"time": times, "v": far})

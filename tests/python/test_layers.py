"""Every layer and form against pandas, for random mixtures of models."""

import numpy
import pandas
import pandas.testing
import pytest

import tidefall

SENSORS = ["north", "south", "east, low", "west"]
START = pandas.Timestamp("2024-01-01")


@pytest.fixture
def db(tmp_path):
    with tidefall.open(str(tmp_path / "db"), memory_mib=64) as db:
        yield db


def readings(random, count, aligned):
    """Random readings: some late, some repeated, some without a value."""
    minutes = random.integers(0, 60 * 24 * 50, count)
    seconds = 0 if aligned else random.integers(0, 60, count)
    value = numpy.round(random.normal(300, 60, count), 3)
    value[random.random(count) < 0.05] = numpy.nan
    return pandas.DataFrame({
        "time": START + pandas.to_timedelta(minutes * 60 + seconds, unit="s"),
        "sensor": random.choice(SENSORS, count),
        "value": value,
        "count": random.integers(-1000, 1000, count),
    })


def model_of(parts):
    """What was written: later rows win, field by field."""
    rows = pandas.concat(parts, ignore_index=True)
    return rows.groupby(["sensor", "time"], as_index=False).agg({"value": "last", "count": "last"})


def create(db):
    """A table in which readings stay where they are put, however old they are."""
    db.sql("CREATE TABLE plant (time TIMESTAMP, sensor TEXT, value DOUBLE, count BIGINT, PRIMARY KEY (sensor, time)) "
           "WITH (cascade = 'kv 20000d, short 30000d, long')").to_dict()


def filled(db, random, aligned):
    """A table whose readings lie in several models, and the model of it."""
    create(db)
    parts = []
    for _ in range(random.integers(1, 6)):
        part = readings(random, int(random.integers(1, 4000)), aligned)
        db.write("plant", part, tags=["sensor"])
        parts.append(part.dropna(subset=["value", "count"], how="all"))
        step = random.integers(0, 4)
        if step == 0:
            db.flush()
        elif step < 3:
            db.cascade("plant", to=["short", "long"][step - 1])
    return model_of(parts)


def wide(model, field="value"):
    return model.pivot(index="time", columns="sensor", values=field).sort_index()


@pytest.mark.parametrize("seed", range(12))
def test_layers_are_what_pandas_says(db, seed):
    random = numpy.random.default_rng(seed)
    model = filled(db, random, aligned=bool(seed % 2))
    plant = db.table("plant")
    chosen = random.choice(SENSORS, random.integers(1, 5), replace=False).tolist()
    start = START + pandas.Timedelta(minutes=int(random.integers(0, 60 * 24 * 40)))
    end = start + pandas.Timedelta(days=int(random.integers(1, 20)))
    within = model[model.sensor.isin(chosen) & (model.time >= start) & (model.time < end)]

    frame = plant.rows(chosen, start, end, field="value")
    expected = wide(within).reindex(columns=[sensor for sensor in chosen])
    found = frame.to_pandas()
    assert frame.sensors == chosen
    pandas.testing.assert_frame_equal(found, expected, check_names=False, check_freq=False, check_index_type=False)
    assert frame.missing == int(expected.isna().sum().sum())
    numpy.testing.assert_array_equal(frame.to_numpy(), expected.to_numpy())
    arrow = frame.to_arrow().to_pandas().set_index("time")
    pandas.testing.assert_frame_equal(arrow, expected, check_names=False, check_freq=False)
    numpy.testing.assert_array_equal(frame.to_dict()[chosen[0]], expected[chosen[0]].to_numpy())

    counts = plant.rows(chosen, start, end, field="count").to_pandas()
    expected = wide(within, "count").reindex(columns=chosen)
    pandas.testing.assert_frame_equal(counts, expected, check_names=False, check_freq=False, check_dtype=False)

    period = f"time >= '{start}' AND time < '{end}'"
    sql = db.sql(f"SELECT * FROM rows('plant', sensors => {chosen}) WHERE {period} ORDER BY time")
    pair = [f"{name}.{field}" for name in chosen for field in ("value", "count")]
    expected = pandas.concat([within.pivot(index="time", columns="sensor", values=field).reindex(columns=chosen).add_suffix(f".{field}") for field in ("value", "count")], axis=1)
    pandas.testing.assert_frame_equal(sql.to_pandas().set_index("time"), expected[pair].sort_index(), check_names=False, check_freq=False, check_dtype=False)
    some = ", ".join(f'"{name}.value"' for name in chosen)
    found = db.sql(f"SELECT time, {some} FROM rows.plant WHERE {period}").to_pandas().set_index("time")
    everyone = model[model.value.notna() | model["count"].notna()]
    expected = wide(everyone[(everyone.time >= start) & (everyone.time < end)]).reindex(columns=chosen).add_suffix(".value")
    pandas.testing.assert_frame_equal(found, expected, check_names=False, check_freq=False)
    hourly = db.sql(f"SELECT time, {some} FROM rows('plant', every => '1h') WHERE {period}").to_pandas().set_index("time")
    bins = everyone.assign(time=everyone.time.dt.floor("1h"))
    bins = bins[(bins.time >= start) & (bins.time < end)].groupby(["sensor", "time"]).value.last().unstack("sensor").reindex(columns=chosen).add_suffix(".value").sort_index()
    pandas.testing.assert_frame_equal(hourly, bins, check_names=False, check_freq=False)
    lists = db.sql(f"SELECT sensor, times, value FROM columns('plant', start => '{start}', end => '{end}') WHERE sensor IN ({', '.join(repr(name) for name in chosen)})").to_dict()
    for sensor, times, values in zip(lists["sensor"], lists["times"], lists["value"]):
        rows = within[within.sensor == sensor].sort_values("time")
        assert times == rows.time.tolist() and [numpy.nan if value is None else value for value in values] == pytest.approx(rows.value.tolist(), rel=0, abs=0, nan_ok=True)

    columns = plant.columns(chosen, start, end, field="value").to_dict()
    for sensor in chosen:
        rows = within[within.sensor == sensor].sort_values("time")
        numpy.testing.assert_array_equal(columns[sensor][0], rows.time.to_numpy())
        numpy.testing.assert_array_equal(columns[sensor][1], rows.value.to_numpy())

    instant = model.time.iloc[int(random.integers(0, len(model)))]
    there = model[(model.time == instant) & model.value.notna()].set_index("sensor").value.to_dict()
    assert plant.at(instant, field="value").to_dict() == there
    latest = model[model.value.notna()].sort_values("time").groupby("sensor").value.last().to_dict()
    assert plant.latest(field="value").to_dict() == latest

    low, high = numpy.sort(random.normal(300, 60, 2))
    values = within[within.value.notna()]
    for bounds, is_kept in [({"between": (low, high)}, values.value.between(low, high)), ({"outside": (low, high)}, (values.value <= low) | (values.value >= high))]:
        expected = wide(values[is_kept]).reindex(columns=chosen)
        found = plant.rows(chosen, start, end, field="value", **bounds).to_pandas()
        pandas.testing.assert_frame_equal(found, expected, check_names=False, check_freq=False, check_index_type=False)
    for found, place in [(plant.lowest(chosen, start, end, field="value"), "idxmin"), (plant.highest(chosen, start, end, field="value"), "idxmax")]:
        rows = values.sort_values(["sensor", "time"]).set_index("time").groupby("sensor").value
        assert found.to_dict() == getattr(rows, place[3:])().to_dict()
        assert dict(zip(found.sensors, found.time)) == {name: time.to_numpy() for name, time in getattr(rows, place)().items()}

    for how in ["mean", "min", "max", "sum", "count", "std", "first", "last"]:
        found = plant.resample("1d", how, chosen, start, end, field="value").to_pandas()
        bins = within.sort_values("time").groupby(["sensor", within.time.dt.floor("1D")]).value
        expected = getattr(bins, how)().unstack("sensor").reindex(columns=chosen)
        if how == "count":
            expected = expected.astype(float)
        elif how == "sum":
            expected = bins.sum(min_count=1).unstack("sensor").reindex(columns=chosen)
        pandas.testing.assert_frame_equal(found, expected, check_names=False, check_freq=False, rtol=1e-9)

    rows = db.sql("SELECT sensor, time, value, count FROM plant ORDER BY sensor, time").to_pandas()
    pandas.testing.assert_frame_equal(rows.astype({"sensor": object}), model.sort_values(["sensor", "time"], ignore_index=True), check_dtype=False)


@pytest.mark.parametrize("every", ["MS", "3MS", "QS", "YS", "W-MON", "2D", "7h"])
def test_bins_are_those_of_pandas(db, every):
    random = numpy.random.default_rng(3)
    create(db)
    parts = []
    for step in ("short", "long", None):
        part = readings(random, 2000, False)
        part["time"] -= pandas.to_timedelta(random.integers(0, 40, len(part)) * 30, unit="D")
        db.write("plant", part, tags=["sensor"])
        parts.append(part.dropna(subset=["value", "count"], how="all"))
        if step:
            db.cascade("plant", to=step)
    model = model_of(parts).set_index("time")
    hows = ["mean", "min", "max", "sum", "count", "std", "first", "last"]
    found = db.table("plant").resample("W" if every == "W-MON" else every, hows, field="value").to_pandas()
    assert list(found.columns) == [(sensor, how) for sensor in sorted(SENSORS) for how in hows]
    # pandas counts fixed widths from the first day, we from 1970.
    options = {} if every[-1] in "SN" else {"origin": "epoch"}
    if every == "W-MON":
        options |= {"closed": "left", "label": "left"}
    if every == "3MS":
        every = "QS"
    for sensor in SENSORS:
        expected = model[model.sensor == sensor].value.resample(every, **options).agg(hows)
        expected = expected.reindex(found.index)
        one = found[sensor]
        expected["sum"] = expected["sum"].where(expected["count"] > 0)
        expected["count"] = expected["count"].where(one["count"].notna())
        pandas.testing.assert_frame_equal(one, expected, check_dtype=False, check_freq=False, check_names=False, rtol=1e-9)


def test_several_aggregates_of_several_fields(db):
    frame = pandas.DataFrame({"time": pandas.date_range(START, periods=48, freq="30min").repeat(2), "sensor": ["a", "b"] * 48, "x": numpy.arange(96.0), "y": numpy.arange(96)})
    db.write("plant", frame, tags="sensor")
    plant = db.table("plant")
    found = plant.resample("D", {"x": ["min", "max"], "y": "sum"})
    assert found.sensors == ["a.x.min", "a.x.max", "a.y.sum", "b.x.min", "b.x.max", "b.y.sum"] and found.tags == {"sensor": ["a"] * 3 + ["b"] * 3}
    expected = frame.groupby("sensor")[["x", "y"]].agg({"x": ["min", "max"], "y": "sum"})
    assert found.to_pandas().iloc[0].tolist() == expected.to_numpy().ravel().tolist()
    assert found.to_pandas()["b"]["y"]["sum"].tolist() == [frame[frame.sensor == "b"].y.sum()]
    assert found.to_arrow().column_names == ["time", *found.sensors]
    assert plant.resample("D", ["mean"], field="x").sensors == ["a.mean", "b.mean"]
    assert plant.resample("D", "mean", field="x").sensors == ["a", "b"]
    for how in ([], {}, {"x": []}, ["mean", "mean"], "median", {"x": "median"}, None, 5, [1], {"x": None}):
        with pytest.raises(tidefall.InvalidError):
            plant.resample("D", how, field=None if isinstance(how, dict) else "x")
    with pytest.raises(tidefall.NotFoundError):
        plant.resample("D", {"z": "mean"})
    with pytest.raises(tidefall.InvalidError, match="several fields; name one: x, y"):
        plant.latest()


def test_every_kind_of_data_is_written(db):
    times = pandas.date_range("2024-05-01", periods=4, freq="1min")
    values = [1.5, 2.5, 3.5, 4.5]
    import polars
    import pyarrow

    kinds = {
        "pandas": pandas.DataFrame({"time": times, "sensor": "a", "value": values}),
        "polars": polars.DataFrame({"time": times, "sensor": ["a"] * 4, "value": values}),
        "arrow": pyarrow.table({"time": pyarrow.array(times), "sensor": ["a"] * 4, "value": values}),
        "dict": {"time": times.to_numpy(), "sensor": ["a"] * 4, "value": numpy.array(values)},
        "index": pandas.DataFrame({"sensor": "a", "value": values}, index=times),
    }
    for kind, data in kinds.items():
        assert db.write(kind, data, tags=["sensor"]) == 4
        assert db.table(kind).rows().to_pandas()["a"].tolist() == values
    frame = pandas.DataFrame({"a": values, "b": values[::-1]}, index=times)
    assert db.write_wide("wide", frame) == 8
    pandas.testing.assert_frame_equal(db.table("wide").rows().to_pandas(), frame, check_names=False, check_freq=False)
    assert db.table("wide").rows().to_polars().columns == ["time", "a", "b"]


def test_errors_say_what_and_where(db):
    with pytest.raises(tidefall.NotFoundError, match="nowhere"):
        db.table("nowhere")
    with pytest.raises(tidefall.InvalidError):
        db.sql("SELEC 1")
    db.write("plant", {"time": [1], "site": ["x"], "room": ["y"], "value": [1.0]}, time="time", tags=["site", "room"])
    with pytest.raises(tidefall.InvalidError, match="site, room"):
        db.table("plant").rows(["x"])
    assert db.table("plant").rows({"site": "x"}).sensors == ["x,y"]
    with pytest.raises(tidefall.NotFoundError, match='no field "heat"'):
        db.table("plant").rows(field="heat")
    with pytest.raises(TypeError, match="cannot be written"):
        db.write("plant", 17)
    db.close()
    with pytest.raises(tidefall.ClosedError):
        db.tables()


def test_an_answer_outlives_its_database_and_can_be_changed(tmp_path):
    with tidefall.open(str(tmp_path / "db")) as db:
        db.write_wide("plant", pandas.DataFrame({"a": [1.0, 2.0]}, index=pandas.date_range("2024-01-01", periods=2)))
        frame = db.table("plant").rows().to_pandas()
    del db
    frame.loc[frame.index[0], "a"] = 7.0
    assert frame["a"].tolist() == [7.0, 2.0]


def test_a_large_answer_is_read_batch_by_batch(db):
    times = pandas.date_range("2024-01-01", periods=200_000, freq="1s")
    db.write_wide("plant", pandas.DataFrame({name: numpy.arange(200_000.0) for name in "abcd"}, index=times))
    rows, total = 0, 0.0
    for batch in db.sql("SELECT value FROM plant"):
        rows += batch.num_rows
        total += batch.column(0).to_numpy().sum()
    assert (rows, total) == (800_000, 4 * 199_999 * 200_000 / 2)


def test_several_threads_read_at_once(db):
    import concurrent.futures

    times = pandas.date_range("2024-01-01", periods=50_000, freq="1min")
    db.write_wide("plant", pandas.DataFrame({name: numpy.arange(50_000.0) for name in "abcd"}, index=times))
    plant = db.table("plant")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for frame in pool.map(lambda _: plant.rows().to_numpy(), range(32)):
            assert frame.shape == (50_000, 4) and frame[-1].tolist() == [49_999.0] * 4


def test_statements_run_whether_or_not_they_are_read(db):
    db.sql("CREATE TABLE plant (time TIMESTAMP, value DOUBLE)")
    db.sql("INSERT INTO plant VALUES ('2024-01-01', 1.5)")
    written = db.sql("INSERT INTO plant VALUES ('2024-01-02', 2.5)")
    assert db.sql("SELECT value FROM plant ORDER BY time").to_dict() == {"value": [1.5, 2.5]}
    assert written.to_dict() == {"count": [1], "replaced": [0]}
    assert db.sql("SELECT count(*) AS n FROM plant").to_dict() == {"n": [2]}


def check_read_once(db):
    """Of a table `large` with 100,000 rows."""
    import concurrent.futures

    import pyarrow

    query = lambda: db.sql("SELECT time, value FROM large")
    again = pytest.raises(tidefall.ClosedError, match="run the statement again")
    rows = query()
    assert len(pyarrow.table(rows)) == 100_000
    with again:
        pyarrow.table(rows)
    with again:
        rows.to_pandas()
    assert repr(rows) == "<tidefall.Rows: time, value>" and rows.schema.names == ["time", "value"]
    rows = query()
    assert sum(batch.num_rows for batch in rows) == 100_000
    with again:
        next(iter(rows))
    with again:
        rows.to_numpy()
    assert rows.schema.names == ["time", "value"]
    rows = query()
    rows.close()
    with again:
        rows.to_pandas()
    rows = query()
    assert [len(rows.to_pandas()), len(rows.to_numpy()["value"]), len(pyarrow.table(rows))] == [100_000] * 3
    rows = query()
    first = next(iter(rows)).num_rows
    assert first + len(rows.to_arrow()) == 100_000

    rows = query()
    readers = [iter(rows) for _ in range(4)]
    starts = [next(reader).num_rows for reader in readers]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        rests = pool.map(lambda reader: sum(batch.num_rows for batch in reader), readers)
        assert sum(starts) + sum(rests) == 100_000


def large():
    return pandas.DataFrame({"value": numpy.arange(100_000.0)}, index=pandas.date_range(START, periods=100_000, freq="1s"))


def test_an_answer_is_read_once(db):
    db.write("large", large())
    check_read_once(db)


def check_times(db):
    """Of a table `plant` with the sensor "a" at each minute of an hour."""
    import datetime

    import pyarrow

    plant = db.table("plant")
    far = [datetime.datetime(3000, 1, 1), datetime.datetime.max, datetime.datetime(1500, 1, 1), numpy.datetime64("9999-12-31"),
           "3000-01-01", pandas.Timestamp("3000-01-01"), 1 << 63]
    for time in [*far, pandas.NaT, numpy.datetime64("NaT"), pyarrow.scalar(None, pyarrow.timestamp("s")), True, 1.5, "noon"]:
        for read in (plant.rows, plant.columns, plant.lowest, plant.highest, lambda *period: list(plant.frames(*period))):
            with pytest.raises(tidefall.InvalidError):
                read(None, time)
            with pytest.raises(tidefall.InvalidError):
                read(None, None, time)
        with pytest.raises(tidefall.InvalidError):
            plant.at(time)
        with pytest.raises(tidefall.InvalidError):
            plant.resample("1h", "mean", None, time)
    with pytest.raises(tidefall.InvalidError):
        plant.at(None)
    for time in far[:4]:
        with pytest.raises(tidefall.InvalidError, match="outside of 1677"):
            plant.rows(None, time)

    half = START + pandas.Timedelta(minutes=30)
    for start in (half, half.to_pydatetime(), half.to_datetime64(), numpy.datetime64(half, "s"), numpy.int64(half.value), half.value,
                  pyarrow.scalar(half), half.tz_localize("UTC").tz_convert("Asia/Tokyo"), str(half)):
        assert len(plant.rows(None, start)) == 30, start
        assert plant.at(start).to_dict() == {"a": 30.0}, start

    expected = plant.resample("15m").to_pandas()
    assert len(expected) == 4
    for every in ("15min", "900s", datetime.timedelta(minutes=15), pandas.Timedelta("15min"), numpy.timedelta64(15, "m")):
        pandas.testing.assert_frame_equal(plant.resample(every).to_pandas(), expected)
    for every in ("1H", "60min", "h", "D", "1D", "1 day", "W", "w", "1M", "MS", "ME", "month", "2 quarters", "Y", "1y"):
        assert len(plant.resample(every)) == 1, every
    for every in (datetime.timedelta(0), "0s", "0M", "0W", "10000Y", "9999999999W", "T", "W-SUN", "", "-1h", pandas.NaT, numpy.timedelta64(1, "M"), 5, None):
        with pytest.raises(tidefall.InvalidError):
            plant.resample(every)

    assert len(plant.rows(between=(None, 9))) == len(plant.rows(between=(50, None))) == 10
    assert len(plant.rows(outside=(None, 50))) == 10 and len(plant.rows(between=(None, None))) == 60
    for bounds in ((1,), (1, 2, 3), 5, ("a", "b")):
        with pytest.raises(tidefall.InvalidError):
            plant.rows(between=bounds)

    year = numpy.array(["3024-01-01"], "M8[s]")
    for times in (year, year.tolist(), [pandas.Timestamp("3024-01-01")]):
        with pytest.raises(tidefall.InvalidError, match="outside of 1677"):
            db.write("far", {"time": times, "value": [1.0]})
    with pytest.raises(tidefall.InvalidError, match="outside of 1677"):
        db.write("far", pandas.DataFrame({"value": [1.0]}, index=pandas.DatetimeIndex(year)))
    with pytest.raises(tidefall.InvalidError):
        db.write("far", {"time": [1, 2], "value": [1.0]}, time="time")
    assert "far" not in db.tables()


def hour():
    return pandas.DataFrame({"sensor": "a", "value": numpy.arange(60.0)}, index=pandas.date_range(START, periods=60, freq="1min"))


def test_times_of_every_kind(db):
    db.write("plant", hour(), tags="sensor")
    check_times(db)


def check_written(db):
    """Frames with indexes of every kind, several times, and columns of nothing."""
    import datetime

    import polars

    times = pandas.date_range(START, periods=2, freq="1min")
    frame = pandas.DataFrame({"time": times, "sensor": ["b", "a"], "value": [1.0, 2.0]})
    for name, data in {
        "both": frame.set_index(["time", "sensor"]),
        "unnamed_time": frame.set_index(["time", "sensor"]).rename_axis(index=[None, "sensor"]),
        "tag": frame.set_index("sensor"),
        "counted": frame.iloc[[1, 0]],
    }.items():
        assert db.write(name, data, tags=["sensor"]) == 2
        assert db.table(name).latest().to_dict() == {"a": 2.0, "b": 1.0}
        assert db.table(name).fields == {"value": "DOUBLE"}
    for index in (["x", "y"], [0.5, 1.5], [["x", "y"], ["p", "q"]]):
        with pytest.raises(tidefall.InvalidError, match="index has no name"):
            db.write("unnamed", frame.set_index(index if isinstance(index[0], list) else pandas.Index(index)), tags=["sensor"])

    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    frame = pandas.DataFrame({"day": days, "other": times + pandas.Timedelta("1h"), "time": times, "value": [1.0, 2.0]})
    instants = {"named": frame, "timestamps": frame.drop(columns="time"), "days": frame[["day", "value"]]}
    for (name, data), column in zip(instants.items(), ["time", "other", "day"]):
        db.write(name, data)
        assert db.table(name).latest(field="value").time[0] == numpy.datetime64(pandas.Timestamp(data[column].iloc[1]))
    assert db.table("named").fields == {"day": "TIMESTAMP", "other": "TIMESTAMP", "value": "DOUBLE"}
    wide = pandas.DataFrame({"value": [3.0, 4.0], "time": times})
    db.write_wide("wide", wide)
    assert db.table("wide").rows().time.tolist() == times.to_numpy().tolist()

    nothing = polars.DataFrame({"time": list(times.to_pydatetime()), "value": [1.0, 2.0], "nothing": [None, None]})
    assert db.write("nothing", nothing) == 2 and db.table("nothing").fields == {"value": "DOUBLE"}
    assert db.write_wide("nothing_wide", nothing) == 2 and db.table("nothing_wide").rows().sensors == ["value"]


def test_frames_of_every_form_are_written(db):
    check_written(db)


def check_labels(db):
    """Sensors whose names are the same when they are put together, or that are called as the times are."""
    times = pandas.date_range(START, periods=4, freq="1min")
    frame = pandas.DataFrame({"site": ["x,y", "x", None, ""], "room": ["z", "y,z", None, ""], "value": [1.0, 2.0, 3.0, 4.0]}, index=times)
    db.write("shared", frame, tags=["site", "room"])
    shared = db.table("shared")
    rows = shared.rows().to_dict()
    found = {name: values[~numpy.isnan(values)].tolist() for name, values in rows.items() if name != "time"}
    assert found == {",": [4.0], "x,y,z": [2.0], "x,y,z#2": [1.0], ",#2": [3.0]}
    assert shared.latest().to_dict() == {",": 4.0, "x,y,z": 2.0, "x,y,z#2": 1.0, ",#2": 3.0}
    assert list(shared.columns().to_dict()) == shared.rows().sensors == list(shared.rows().to_pandas().columns)
    assert shared.rows({"room": "z"}).to_dict()["x,y,z"].tolist() == [1.0]
    assert shared.rows({"room": "y,z"}).to_dict()["x,y,z"].tolist() == [2.0]

    db.write("clock", pandas.DataFrame({"sensor": ["time", "b"], "value": [1.0, 2.0]}, index=times[:2]), tags="sensor")
    clock = db.table("clock").rows()
    assert clock.to_dict()["time"].tolist() == times[:2].to_numpy().tolist()
    assert clock.to_dict()["time#2"][0] == 1.0 and clock.to_arrow().column_names == ["time", "b", "time#2"]


def test_no_sensor_is_lost_to_another_of_its_name(db):
    check_labels(db)


def test_paths_and_names_of_a_closed_database(tmp_path):
    with pytest.raises(tidefall.InvalidError, match="empty"):
        tidefall.open("")
    with pytest.raises(TypeError):
        tidefall.open(5)
    with tidefall.open(tmp_path / "db") as db:
        db.write("plant", hour(), tags="sensor")
        plant = db.table("plant")
    assert "closed" in repr(db) and "plant" in repr(plant) and "closed" in repr(plant)

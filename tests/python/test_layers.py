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
    expected = wide(within[within.value.notna() | within["count"].notna()]).reindex(columns=chosen).add_suffix(".value")
    pandas.testing.assert_frame_equal(found, expected, check_names=False, check_freq=False)
    hourly = db.sql(f"SELECT time, {some} FROM rows('plant', every => '1h') WHERE {period}").to_pandas().set_index("time")
    bins = model[model.sensor.isin(chosen)].assign(time=model.time.dt.floor("1h"))
    bins = bins[(bins.time >= start) & (bins.time < end)].groupby(["sensor", "time"]).value.last().unstack("sensor").reindex(columns=chosen).add_suffix(".value").sort_index()
    pandas.testing.assert_frame_equal(hourly, bins, check_names=False, check_freq=False)
    lists = db.sql(f"SELECT sensor, times, value FROM columns.plant WHERE {period} AND sensor IN ({', '.join(repr(name) for name in chosen)})").to_dict()
    for sensor, times, values in zip(lists["sensor"], lists["times"], lists["value"]):
        rows = within[within.sensor == sensor].sort_values("time")
        assert times == rows.time.tolist() and [numpy.nan if value is None else value for value in values] == pytest.approx(rows.value.tolist(), rel=0, abs=0, nan_ok=True)

    columns = plant.columns(chosen, start, end, field="value").to_dict()
    for sensor in chosen:
        rows = within[within.sensor == sensor].sort_values("time")
        numpy.testing.assert_array_equal(columns[sensor][0], rows.time.to_numpy())
        numpy.testing.assert_array_equal(columns[sensor][1], rows.value.to_numpy())

    moment = model.time.iloc[int(random.integers(0, len(model)))]
    there = model[(model.time == moment) & model.value.notna()].set_index("sensor").value.to_dict()
    assert plant.at(moment, field="value").to_dict() == there
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

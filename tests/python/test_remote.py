"""The client of a server answers as the database in this process does."""

import numpy
import pandas
import pandas.testing
import polars
import pytest

import tidefall
from served import Served
from test_layers import SENSORS, START, check_labels, check_read_once, check_times, check_written, hour, large, readings


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "db")


def assert_same(one, other):
    pandas.testing.assert_frame_equal(one.to_pandas(), other.to_pandas(), check_freq=False, check_dtype=False, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_the_same(folder, seed):
    random = numpy.random.default_rng(seed)
    with tidefall.open(folder, memory_mib=64) as db:
        db.write("plant", readings(random, 5000, bool(seed % 2)), tags=["sensor"])
        db.cascade("plant", to="long")
        db.write("plant", readings(random, 500, bool(seed % 2)), tags=["sensor"])
    served = Served(folder)
    try:
        here, there = tidefall.open(folder, read_only=True).table("plant"), served.client.table("plant")
        assert repr(here) == repr(there) and here.tags == there.tags and here.fields == there.fields
        assert here.sensors() == there.sensors()
        period = START + pandas.Timedelta(days=5), START + pandas.Timedelta(days=12)
        chosen = SENSORS[2::-1]
        assert here.sensors(chosen) == there.sensors(chosen) == {"sensor": chosen}
        for field in ("value", "count"):
            options = {"field": field}
            assert_same(here.rows(chosen, *period, **options), there.rows(chosen, *period, **options))
            assert_same(here.rows(chosen, *period, between=(-50, 330), **options), there.rows(chosen, *period, between=(-50, 330), **options))
            assert_same(here.columns(chosen, *period, **options), there.columns(chosen, *period, **options))
            assert_same(here.latest(**options), there.latest(**options))
            assert_same(here.latest(chosen, **options), there.latest(chosen, **options))
            assert there.rows(chosen, *period, **options).sensors == there.columns(chosen, *period, **options).sensors == chosen
            assert_same(here.lowest(chosen, *period, **options), there.lowest(chosen, *period, **options))
            assert_same(here.highest(**options), there.highest(**options))
            assert_same(here.highest(chosen, **options), there.highest(chosen, **options))
            instant = here.latest(**options).time[0]
            assert_same(here.at(instant, **options), there.at(instant, **options))
            for how in ("mean", "count", "std", "min", "max", "sum", "first", "last"):
                assert_same(here.resample("6h", how, chosen, *period, **options), there.resample("6h", how, chosen, *period, **options))
    finally:
        served.stop()


def test_writes_and_sql(folder):
    served = Served(folder)
    try:
        db = served.client
        times = pandas.date_range("2024-05-01", periods=100_000, freq="1s")
        frame = pandas.DataFrame({"sensor": "a", "value": numpy.arange(100_000.0)}, index=times)
        assert db.write("plant", frame, tags=["sensor"]) == 100_000
        assert db.write_wide("wide", pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, None]}, index=times[:2])) == 3
        assert db.write("polars", polars.DataFrame({"time": times[:3], "value": [1, 2, 3]})) == 3
        assert sorted(db.tables()) == ["plant", "polars", "wide"]
        assert db.table("wide").rows().to_pandas()["b"].dropna().tolist() == [3.0]
        rows = 0
        for batch in db.sql("SELECT value FROM plant"):
            rows += batch.num_rows
        assert rows == 100_000
        assert polars.DataFrame(db.sql("SELECT sum(value) AS s FROM plant")).item() == 99_999 * 50_000
        with pytest.raises(tidefall.InvalidError, match="SELEC"):
            db.sql("SELEC 1")
        with pytest.raises(tidefall.NotFoundError, match="nowhere"):
            db.table("nowhere")
        with pytest.raises(tidefall.ConflictError):
            db.write("plant", {"time": [1], "sensor": ["a"], "value": ["text"]}, time="time", tags=["sensor"])
        with pytest.raises(tidefall.UnsupportedError):
            db.flush()
    finally:
        served.stop()
    with pytest.raises(tidefall.IoError, match="does not answer"):
        tidefall.connect("127.0.0.1:9")
    with pytest.raises(tidefall.InvalidError, match="no address"):
        tidefall.connect("ftp://x")


def test_settings_last(folder):
    with tidefall.open(folder) as db:
        db.sql("CREATE TABLE t (time TIMESTAMP, v BIGINT)").to_pandas()
        check_settings(db)
    served = Served(folder)
    try:
        check_settings(served.client)
    finally:
        served.stop()


def check_settings(db):
    plan = lambda: " ".join(db.sql("EXPLAIN SELECT count(*) FROM t").to_pandas()["plan"])
    zone = lambda: db.sql("SELECT arrow_typeof(now())").to_pandas().iloc[0, 0]
    assert "TidefallMetrics" in plan()
    db.sql("SET tidefall.metrics = off;")
    db.sql("SET datafusion.execution.time_zone = 'Europe/Berlin'")
    assert "TidefallScan" in plan() and "TidefallMetrics" not in plan() and "Europe/Berlin" in zone()
    with pytest.raises(tidefall.UnsupportedError):
        db.sql("SET datafusion.execution.target_partitions = 100")
    db.sql("reset datafusion.execution.time_zone")
    assert "Europe/Berlin" not in zone() and "TidefallScan" in plan()
    assert db.tables() == ["t"]


def test_each_setting_is_sent_once(folder):
    with tidefall.open(folder) as db:
        db.sql("CREATE TABLE t (time TIMESTAMP, v BIGINT)")
    served = Served(folder)
    try:
        db = served.client
        for round_ in range(50):
            db.sql(f"SET tidefall.metrics = {'on' if round_ % 2 else 'off'}")
            db.sql(f"set Tidefall.Metrics = {'off' if round_ % 2 else 'on'};")
            db.sql(f"SET TIME ZONE = '+0{round_ % 10}:00'")
            db.sql(f"SET datafusion.execution.time_zone = '+0{round_ % 10}:30'")
        assert len("".join(db._core.settings.values())) < 120
        assert "TidefallScan" in " ".join(db.sql("EXPLAIN SELECT count(*) FROM t").to_pandas()["plan"])
        assert "+09:30" in db.sql("SELECT arrow_typeof(now())").to_pandas().iloc[0, 0]
        db.sql("RESET datafusion.execution.time_zone")
        assert "+09:30" not in db.sql("SELECT arrow_typeof(now())").to_pandas().iloc[0, 0]
        assert len(db._core.settings) == 1
    finally:
        served.stop()


def test_answers_are_read_and_data_is_written_as_in_this_process(folder):
    served = Served(folder)
    try:
        db = served.client
        db.write("large", large())
        check_read_once(db)
        db.write("plant", hour(), tags="sensor")
        check_times(db)
        check_written(db)
        check_labels(db)
        with pytest.raises(tidefall.IoError, match="for an error, which its log tells"):
            db.sql("SELECT 1 / (value::BIGINT - 90000) AS v FROM large").to_arrow()
        plant = db.table("plant")
    finally:
        served.stop()
    assert "closed" in repr(db) and "closed" in repr(plant)


def test_sensors_of_several_objects_are_categories_of_pandas(folder):
    with tidefall.open(folder, memory_mib=64) as db:
        times = pandas.date_range(START, periods=20_000, freq="1s")
        frame = lambda start: pandas.DataFrame({"sensor": numpy.array(["a", "b"])[numpy.arange(20_000) % 2], "value": start}, index=times)
        db.write("plant", frame(1.0), tags=["sensor"])
        db.cascade("plant", to="long")
        db.write("plant", frame(2.0).set_index(times + pandas.Timedelta("500ms")), tags=["sensor"])
    served = Served(folder)
    try:
        query = "SELECT * FROM plant ORDER BY time"
        assert served.client.sql(query).to_pandas()["sensor"].value_counts().to_dict() == {"a": 20_000, "b": 20_000}
        assert "sensor" in served.client.sql(query)._repr_html_()
        rows = served.client.sql(query)
        assert next(iter(rows)).num_rows + len(rows.to_pandas()) == 40_000
    finally:
        served.stop()


def test_sensors_that_come_between_two_questions_are_passed_over(folder):
    served = Served(folder)
    try:
        db, table = served.client, served.client.table
        frame = lambda sensor: pandas.DataFrame({"sensor": sensor, "value": [1.0, 2.0], "other": [3.0, 4.0]}, index=pandas.date_range(START, periods=2, freq="1h"))
        db.write("plant", frame("a"), tags="sensor")
        ask, late = db._core.frames, iter("bc")

        def interrupted(*question):
            found = ask(*question)
            db.write("plant", frame(next(late)), tags="sensor")
            return found

        db._core.frames = interrupted
        # A question for each field.
        found = table("plant").resample("1h", {"value": "sum", "other": "count"}).to_pandas()
        assert found.columns.get_level_values(0).unique().tolist() == ["a"] and not found.isna().any(axis=None)
        assert next(late, None) is None
        db._core.frames = ask
        assert table("plant").rows(field="value").sensors == ["a", "b", "c"]
    finally:
        served.stop()

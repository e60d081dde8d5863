"""The same script, run on a database in this process and on one behind a server, gives the same answers: values and
their types, indexes, counts of what was written, and the kinds of errors."""

import datetime
import decimal
import time

import numpy
import pandas
import pandas.testing
import polars
import pyarrow
import pytest

import tidefall
from served import Served

START = pandas.Timestamp("2024-01-01")
MINUTES = 240
INTEGERS = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
TYPES = {**{name: pyarrow.from_numpy_dtype(dtype) for name, dtype in INTEGERS.items()}, "f32": pyarrow.float32(), "f64": pyarrow.float64(),
         "flag": pyarrow.bool_(), "note": pyarrow.string(), "seen": pyarrow.timestamp("us")}
AGGREGATES = ["mean", "min", "max", "sum", "count", "std", "first", "last"]


@pytest.fixture
def both(tmp_path):
    """A database in this process, and one behind a server."""
    served = Served(str(tmp_path / "there"))
    try:
        with tidefall.open(str(tmp_path / "here"), memory_mib=64) as here:
            yield here, served.client
    finally:
        served.stop()


def values_of(random, type_, count):
    if pyarrow.types.is_integer(type_):
        limits = numpy.iinfo(type_.to_pandas_dtype())
        values = random.integers(limits.min, limits.max, count, dtype=type_.to_pandas_dtype(), endpoint=True)
        values[:2] = limits.min, limits.max
        return values
    if pyarrow.types.is_floating(type_):
        values = numpy.round(random.normal(300, 60, count), 3).astype(type_.to_pandas_dtype())
        values[:3] = -0.0, 1e30, -1e-30
        return values
    if pyarrow.types.is_boolean(type_):
        return random.random(count) < 0.5
    if pyarrow.types.is_timestamp(type_):
        return (START + pandas.to_timedelta(random.integers(-10**9, 10**9, count), unit="s")).to_numpy().astype("M8[us]")
    return random.choice(["", "hot", "cold, and\nwet", "naïve", "x" * 300], count)


def readings(random, type_, count, gaps, sensors=("a", "b", "c")):
    """Readings of some sensors at random minutes."""
    rows = random.choice(MINUTES * len(sensors), count, replace=False)
    values = pyarrow.array(values_of(random, type_, count), type_, mask=random.random(count) < gaps)
    times = pyarrow.array((START + pandas.to_timedelta(rows % MINUTES, unit="min")).to_numpy())
    return pyarrow.table({"time": times, "sensor": [sensors[row] for row in rows // MINUTES], "value": values})


def answer(question):
    try:
        return question()
    except Exception as error:
        return error


def check_arrays(one, other, is_exact, what):
    one, other = numpy.asarray(one), numpy.asarray(other)
    assert (one.dtype, one.shape) == (other.dtype, other.shape), what
    if one.dtype.kind == "f" and not is_exact:
        numpy.testing.assert_allclose(one, other, rtol=1e-12, err_msg=what)
    else:
        numpy.testing.assert_array_equal(one, other, err_msg=what)


def check_forms(one, other, is_exact, what):
    """The forms into which both turn."""
    frames = one.to_pandas(), other.to_pandas()
    pandas.testing.assert_frame_equal(*frames, check_freq=False, check_exact=is_exact, **({} if is_exact else {"rtol": 1e-12}), obj=what)
    tables = one.to_arrow(), other.to_arrow()
    assert tables[0].schema == tables[1].schema, what
    assert (one.to_polars().schema, len(tables[0])) == (other.to_polars().schema, len(tables[1])), what
    assert list(one.to_dict()) == list(other.to_dict()), what


def check(one, other, what, is_exact=True):
    if isinstance(one, Exception) or isinstance(other, Exception):
        assert type(one) is type(other), f"{what}: {one!r} and {other!r}"
        return
    assert type(one) is type(other), what
    if isinstance(one, tidefall.Frame):
        assert (one.sensors, one.tags, one.missing) == (other.sensors, other.tags, other.missing), what
        check_arrays(one.time, other.time, True, what)
        check_arrays(one.values, other.values, is_exact, what)
        check_arrays(one.to_numpy(), other.to_numpy(), is_exact, what)
        check_forms(one, other, is_exact, what)
    elif isinstance(one, tidefall.Values):
        assert (one.sensors, one.tags) == (other.sensors, other.tags), what
        check_arrays(one.time, other.time, True, what)
        check_arrays(one.values, other.values, is_exact, what)
        check_forms(one, other, is_exact, what)
    elif isinstance(one, tidefall.Columns):
        assert (one.sensors, one.tags) == (other.sensors, other.tags), what
        for pair in zip(one.series, other.series, strict=True):
            check_arrays(pair[0][0], pair[1][0], True, what)
            check_arrays(pair[0][1], pair[1][1], is_exact, what)
        check_forms(one, other, is_exact, what)
    elif isinstance(one, tidefall.Rows):
        one, other = one.to_arrow(), other.to_arrow()
        assert one.schema == other.schema and one.to_pylist() == other.to_pylist(), what
    elif isinstance(one, tidefall.Written):
        assert (int(one), one.replaced, repr(one)) == (int(other), other.replaced, repr(other)), what
    else:
        assert one == other, what


def ask_both(both, what, question, is_exact=True):
    """Asks both and compares; the answer of the first."""
    here, there = (answer(lambda: question(db)) for db in both)
    check(here, there, what, is_exact)
    return here


WHOLE, PART, NEVER, BEFORE = (None, None), (START + pandas.Timedelta("50min"), START + pandas.Timedelta("170min")), ("2024-01-02", "2024-01-01"), (None, START)


def pieces(table, sensors, field):
    found = [piece.to_pandas() for piece in table.frames(sensors, field=field, rows=40)]
    return pandas.concat(found).to_dict("list") if found else None


def ask_table(both, table, fields, chosen=(None,), times=(WHOLE, PART, NEVER)):
    """All ways to read a table."""
    ask = lambda what, question, is_exact=True: ask_both(both, f"{table}: {what}", lambda db: question(db.table(table)), is_exact)
    ask("repr", repr)
    ask("tags", lambda t: t.tags)
    ask("fields", lambda t: t.fields)
    for sensors in chosen:
        ask(f"sensors {sensors}", lambda t: t.sensors(sensors))
        for field in fields:
            options, named = {"field": field}, f"of {sensors} field {field}"
            ask(f"latest {named}", lambda t: t.latest(sensors, **options))
            ask(f"at {named}", lambda t: t.at(START + pandas.Timedelta("20min"), sensors, **options))
            ask(f"at nothing {named}", lambda t: t.at(START - pandas.Timedelta("20s"), sensors, **options))
            ask(f"frames {named}", lambda t: str(pieces(t, sensors, field)))
            for start, end in times:
                period = f"{named} from {start} to {end}"
                for bounds in ({}, {"between": (-5, 100)}, {"outside": (None, 300)}):
                    ask(f"rows {bounds} {period}", lambda t: t.rows(sensors, start, end, **bounds, **options))
                ask(f"columns {period}", lambda t: t.columns(sensors, start, end, **options))
                ask(f"lowest {period}", lambda t: t.lowest(sensors, start, end, **options))
                ask(f"highest {period}", lambda t: t.highest(sensors, start, end, **options))
                ask(f"resample {period}", lambda t: t.resample("1h", AGGREGATES, sensors, start, end, **options), False)
                ask(f"count {period}", lambda t: t.resample("50min", "count", sensors, start, end, **options))


@pytest.mark.parametrize("name", TYPES)
def test_fields_of_every_type(both, name):
    random = numpy.random.default_rng(list(TYPES).index(name))
    for table, gaps in (("whole", 0), ("gaps", 0.3), ("nothing", 1)):
        data = readings(random, TYPES[name], 300, gaps)
        ask_both(both, f"write {table}", lambda db: db.write(table, data, tags="sensor"))
        late = readings(random, TYPES[name], 40, gaps)
        written = ask_both(both, f"write {table} again", lambda db: db.write(table, late, tags="sensor"))
        assert written == 40 and 0 < written.replaced < 40
        ask_table(both, table, [None], (None, ["c", "a"]))
    # At all times all sensors have a value: a frame without gaps keeps the type.
    full = pyarrow.table({"time": pyarrow.array(pandas.date_range(START, periods=30, freq="1min")), **{sensor: values_of(random, TYPES[name], 30) for sensor in "ab"}})
    assert ask_both(both, "write_wide", lambda db: db.write_wide("wide", full)) == 60
    ask_table(both, "wide", [None], (None, ["b"], ["nobody"]), (WHOLE, BEFORE))


def test_all_types_in_one_table(both):
    random = numpy.random.default_rng(99)
    count = 400
    columns = {name: pyarrow.array(values_of(random, type_, count), type_, mask=random.random(count) < 0.2) for name, type_ in TYPES.items()}
    data = pyarrow.table({
        "time": pyarrow.array((START + pandas.to_timedelta(random.integers(0, MINUTES, count), unit="min")).to_numpy()),
        "site": pyarrow.array(random.choice(["x", "x,y", "", None], count)), "room": pyarrow.array(random.choice(["1", "2,", None], count)), **columns,
    })
    assert ask_both(both, "write", lambda db: db.write("all", data, time="time", tags=["site", "room"])).replaced > 0
    ask_table(both, "all", [None, *TYPES, "none"], times=(WHOLE,))
    ask_table(both, "all", ["i64", "note", "flag"], ({"site": ["x", ""]}, {"site": "x,y", "room": ["2,", "1"]}, ["x"], {"nowhere": "x"}), (PART,))
    ask_both(both, "sql", lambda db: db.sql("SELECT * FROM \"all\" ORDER BY time, site, room"))


def test_odd_floats(both):
    times = pandas.date_range(START, periods=6, freq="1min")
    values = [numpy.nan, numpy.inf, -numpy.inf, -0.0, 0.0, None]
    data = pyarrow.table({"time": pyarrow.array(times), "sensor": ["a"] * 6, "value": pyarrow.array(values, from_pandas=False)})
    only = pyarrow.table({"time": pyarrow.array(times[:1]), "sensor": ["b"], "value": [numpy.nan]})
    for rows in (data, only):
        ask_both(both, "write", lambda db: db.write("odd", rows, tags="sensor"))
    ask_table(both, "odd", [None])


def test_tables_without_tags_without_rows_and_with_odd_names(both):
    random = numpy.random.default_rng(5)
    data = readings(random, pyarrow.int32(), 100, 0, ("only",)).drop(["sensor"])
    ask_both(both, "write", lambda db: db.write("alone", data))
    ask_table(both, "alone", [None], (None, ["a"]))
    ask_both(both, "create", lambda db: db.sql("CREATE TABLE empty (time TIMESTAMP, sensor TEXT, v REAL, note TEXT, PRIMARY KEY (sensor, time))"))
    ask_table(both, "empty", ["v", "note"], (None, ["a"]))
    odd = readings(random, pyarrow.float64(), 50, 0, ("time", "it's", 'a "b"')).rename_columns(["time", "time of", "times"])
    ask_both(both, "write", lambda db: db.write('odd "name"', odd, time="time", tags="time of"))
    ask_table(both, 'odd "name"', [None], (None, ["it's", "time"]))
    ask_both(both, "tables", lambda db: db.tables())
    ask_both(both, "no table", lambda db: db.table("nowhere"))


def test_sensors_without_readings(both):
    random = numpy.random.default_rng(6)
    data = readings(random, pyarrow.float64(), 200, 0)
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    ask_both(both, "delete", lambda db: db.sql("DELETE FROM t WHERE sensor = 'b'").to_dict())
    ask_table(both, "t", [None], (None, ["b"], ["a", "b"]))


def content(table):
    """Rows in any order."""
    return table.schema.to_string(), sorted(map(repr, table.to_pylist()))


def test_data_is_written_alike(both):
    times = pandas.date_range(START, periods=4, freq="1min")
    frame = pandas.DataFrame({"a": [1.0, None, 3.0, 4.0], "b": [None] * 4, "c": [1.5, 2.5, None, None]}, index=times)
    written = [
        lambda db: db.write_wide("wide", frame),
        lambda db: db.write_wide("wide", frame),
        lambda db: db.write_wide("wide", frame.iloc[:0]),
        lambda db: db.write_wide("new", frame[["b"]]),
        lambda db: db.write_wide("mixed", pandas.DataFrame({"i": [1, 2, 3, 4], "f": [0.5, None, 1.5, 2.5], "s": numpy.int8([1, 2, 3, 4])}, index=times)),
        lambda db: db.write_wide("unsigned", pandas.DataFrame({"u": numpy.uint8([1, 2, 3, 255]), "s": numpy.int8([-1, 2, 3, 4])}, index=times)),
        lambda db: db.write_wide("text", pandas.DataFrame({"i": [1, 2, 3, 4], "t": list("abcd")}, index=times)),
        lambda db: db.write_wide("large", pandas.DataFrame({"i": [1, 2, 3, 2**53 + 1], "f": 0.5}, index=times)),
        lambda db: db.write_wide("twice", pyarrow.table([pyarrow.array(times), [1] * 4, [2] * 4], names=["time", "a", "a"])),
        lambda db: db.write_wide("polars", polars.DataFrame({"time": list(times.to_pydatetime()), "x": ["p", None, "q", "r"], "n": [None] * 4})),
        lambda db: db.write("empty", frame.iloc[:0], time="time") if frame.index.set_names("time", inplace=True) is None else None,
        lambda db: db.write("rows", frame.reset_index().melt("time", var_name="sensor"), tags="sensor"),
        lambda db: db.write("rows", frame.reset_index().melt("time", var_name="sensor"), tags="sensor", existing="replace"),
        lambda db: db.write("rows", frame.reset_index().melt("time", var_name="sensor"), tags="sensor", existing="refuse"),
        lambda db: db.write_wide("wide", frame, existing="refuse"),
        lambda db: db.write_wide("wide", frame.set_index(times + pandas.Timedelta("1d")).rename_axis("time"), existing="refuse"),
        lambda db: db.write("rows", frame, existing="never"),
        lambda db: db.write("rows", {"time": [1, 2], "value": ["x", "y"]}, time="time"),
        lambda db: db.write("rows", {"time": [1, 2], "value": [1.0]}, time="time"),
        lambda db: db.write("rows", {"value": [1.0]}),
        lambda db: db.write("rows", {"value": [1.0]}, time="when"),
        lambda db: db.write("rows", {"time": [1], "value": [1.0], "tag": ["x"]}, time="time", tags=["none"]),
        lambda db: db.write("rows", {"time": [1], "value": [[1.0]]}, time="time"),
        lambda db: db.write("", {"time": [1], "value": [1.0]}, time="time"),
        lambda db: db.write("rows", 17),
        lambda db: db.write("counts", pandas.DataFrame({"n": [1, 2, 3, 4]}, index=times)),
        lambda db: db.write("counts", pandas.DataFrame({"n": [1, None, 3, 4]}, index=times + pandas.Timedelta("1h"))),
        lambda db: db.write("counts", pandas.DataFrame({"n": pandas.array([2**60 + 1, None, 3, 4], dtype="Int64")}, index=times + pandas.Timedelta("2h"))),
        lambda db: db.write("counts", pandas.DataFrame({"n": [1.5, None, 3, 4]}, index=times)),
        lambda db: db.write("counts", pandas.DataFrame({"n": [2.0**53 + 2, None, 3, 4]}, index=times)),
        lambda db: db.write_wide("counts", pandas.DataFrame({"x": [1.0, None, 2, 3], "y": [1, 2, 3, 4]}, index=times), field="n", tag="s"),
        lambda db: db.table("rows").write({"time": [START, START], "sensor": ["z", "z"], "value": [1.0, 2.0]}),
        lambda db: db.write("dates", {"day": [datetime.date(2020, 1, 1)], "value": [True]}),
        lambda db: db.write("zoned", pandas.DataFrame({"value": [1.0]}, index=[pandas.Timestamp("2024-01-01", tz="Asia/Tokyo")])),
    ]
    for number, write in enumerate(written):
        ask_both(both, f"write {number}", write)
        tables = ask_both(both, f"tables after {number}", lambda db: sorted(db.tables()))
        for table in tables:
            ask_both(both, f"{table} after write {number}", lambda db: content(db.sql(f'SELECT * FROM "{table}"').to_arrow()))
            ask_both(both, f"schema of {table} after write {number}", lambda db: repr(db.table(table)))


def test_what_does_not_fit_is_named_with_column_row_and_value(both):
    times = pandas.date_range(START, periods=3, freq="1min")
    frame = lambda values: pandas.DataFrame({"n": values}, index=times)
    # One that no float is, so that the field cannot become one of floats.
    ask_both(both, "integers", lambda db: db.write("t", frame([1, 2, 2**53 + 1])))
    wider = ['"n"', "cannot become DOUBLE", "BIGINT", "9007199254740993"]
    for values, said in (([1, None, 2.5], wider), ([1, 1e300, None], wider), (["1", "2", "3"], ["row 1", '"n"', "TEXT"])):
        for db in both:
            with pytest.raises(tidefall.ConflictError) as error:
                db.write("t", frame(values))
            assert all(part in str(error.value) for part in said), error.value
    for db in both:
        with pytest.raises(tidefall.InvalidError, match="column 'i', row 2: 9007199254740993 is beyond"):
            db.write_wide("w", pandas.DataFrame({"i": [1, 2**53 + 1, 3], "f": 0.5}, index=times))
        with pytest.raises(tidefall.InvalidError, match="'i' is of type int64 and 't' of type (large_)?string"):
            db.write_wide("w", pandas.DataFrame({"i": [1, 2, 3], "t": list("abc")}, index=times))
        assert db.tables() == ["t"]
        # Nothing is left behind that the next try would stumble over.
        assert db.write_wide("w", pandas.DataFrame({"i": [1, 2, 3], "f": [0.5, None, 1.5]}, index=times)) == 5
        assert db.table("w").fields == {"value": "DOUBLE"}
    far = pandas.DataFrame({"n": [1.0] * 200_000}, index=pandas.date_range(START, periods=200_000, freq="1s"))
    far.iloc[150_000] = 0.25
    for db in both:
        with pytest.raises(tidefall.ConflictError, match=r"of the rows from \d+ on: .*DOUBLE"):
            db.write("t", far)


def test_a_source_that_fails_is_told_with_the_rows_that_are_written(both):
    def pieces(count):
        for first in range(count):
            yield pyarrow.record_batch({"time": pyarrow.array([first], pyarrow.timestamp("s")), "value": [1.5]})
        raise ValueError("no more of it")

    schema = pyarrow.schema({"time": pyarrow.timestamp("s"), "value": pyarrow.float64()})
    for db in both:
        for count, words in [(0, "^(?!of the rows).*no more of it"), (3, "^of the rows from 4 on: .*no more of it")]:
            reader = pyarrow.RecordBatchReader.from_batches(schema, pieces(count))
            with pytest.raises(tidefall.InvalidError, match=words):
                db.write(f"t{count}", reader)
        assert db.tables() == ["t3"]
        assert db.sql("SELECT count(*) FROM t3").to_arrow().column(0).to_pylist() == [3]


def test_rows_without_a_tag_of_their_table_are_refused(both):
    """Rows without it are of no sensor, and replaced each other."""
    data = pandas.DataFrame({"time": pandas.date_range(START, periods=3, freq="1min"), "site": "a", "sensor": ["x", "y", "x"], "v": 1.0})
    ask_both(both, "write", lambda db: db.write("t", data, tags=["site", "sensor"]))
    for columns, tags in ((["time", "v"], []), (["time", "site", "v"], ["site"])):
        refused = ask_both(both, f"without {columns}", lambda db: db.write("t", data[columns], tags=tags))
        assert isinstance(refused, tidefall.InvalidError) and "'sensor'" in str(refused).replace('"', "'") and "which these rows lack" in str(refused)
    assert ask_both(both, "count", lambda db: db.sql("SELECT count(*) AS n FROM t").to_dict()) == {"n": [3]}
    # Those that have none say so, and a tag may be new.
    assert ask_both(both, "of no sensor", lambda db: db.write("t", data.assign(sensor=None, room="r"), tags=["site", "sensor", "room"])) == 3


def test_inserts_tell_what_they_replaced(both):
    ask_both(both, "create", lambda db: db.sql("CREATE TABLE t (time TIMESTAMP, sensor TEXT, v DOUBLE, PRIMARY KEY (sensor, time))"))
    rows = "('2024-01-01', 'a', 1), ('2024-01-02', 'a', 2), ('2024-01-02', 'b', 3)"
    for replaced in (0, 3):
        told = ask_both(both, "insert", lambda db: db.sql(f"INSERT INTO t VALUES {rows}")).to_arrow()
        assert told.to_pylist() == [{"count": 3, "replaced": replaced}] and told.schema.types == [pyarrow.uint64()] * 2
    told = ask_both(both, "select", lambda db: db.sql("INSERT INTO t SELECT time + INTERVAL '1 day', sensor, v FROM t"))
    assert told.to_pandas()["replaced"].tolist() == [1]


def test_errors_are_of_the_same_kind(both):
    data = readings(numpy.random.default_rng(7), pyarrow.float64(), 50, 0)
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    for statement in ("SELEC 1", "SELECT nothing FROM t", "SELECT * FROM nowhere", "SELECT 1 / 0", "DROP TABLE nowhere", "CREATE TABLE t (time TIMESTAMP, v DOUBLE)",
                      "INSERT INTO t VALUES ('x', 'y', 'z')", "SET nothing = 1", "SELECT v FROM t; SELECT 2", ""):
        ask_both(both, statement, lambda db: db.sql(statement))
    for question in (
        lambda t: t.resample("1h", "median"), lambda t: t.resample("1h", []), lambda t: t.resample("1h", ["mean", "mean"]), lambda t: t.resample("1h", {"none": "mean"}),
        lambda t: t.resample("1h", {"value": "mean"}, field="value"), lambda t: t.resample("soon"), lambda t: t.rows(between=(1, 2), outside=(1, 2)),
        lambda t: t.rows({"none": "a"}), lambda t: t.at(None), lambda t: t.rows(start="noon"), lambda t: list(t.frames(rows=0)), lambda t: t.latest(field="none"),
    ):
        assert isinstance(ask_both(both, "error", lambda db: question(db.table("t"))), tidefall.Error)
    for db in both:
        db.close()
    for question in (lambda db: db.tables(), lambda db: db.sql("SELECT 1"), lambda db: db.write("t", data, tags="sensor"), lambda db: db.write_wide("t", data.select([0, 2])), lambda db: db.table("t")):
        assert isinstance(ask_both(both, "closed", question), tidefall.ClosedError)


@pytest.mark.parametrize("every", ["15min", "D", "1D", "h", "min", "W", "2W", "1M", "MS", "Q", "3 months", "Y", "90s", "700ms", "1h 30m", datetime.timedelta(minutes=7)])
def test_bins(both, every):
    random = numpy.random.default_rng(8)
    count = 300
    times = (START + pandas.to_timedelta(random.integers(-800 * 86_400, 800 * 86_400, count), unit="s")).to_numpy()
    data = pyarrow.table({"time": times, "sensor": random.choice(["a", "b"], count), "value": random.normal(size=count), "n": random.integers(0, 9, count)})
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    asked = lambda db, how: db.table("t").resample(every, how, field="value")
    found = ask_both(both, "bins", lambda db: asked(db, "sum"), False).to_pandas()
    several = ask_both(both, "several", lambda db: asked(db, ["sum", "count"]), False).to_pandas()
    pandas.testing.assert_frame_equal(several.xs("sum", axis=1, level=1), found)
    of_fields = ask_both(both, "fields", lambda db: db.table("t").resample(every, {"value": ["sum", "count"], "n": "max"}), False).to_pandas()
    assert list(of_fields.columns) == [(sensor, *part) for sensor in "ab" for part in (("value", "sum"), ("value", "count"), ("n", "max"))]
    pandas.testing.assert_frame_equal(of_fields.xs("value", axis=1, level=1), several)


def test_columns_called_as_an_answer_could_call_its_own(both):
    random = numpy.random.default_rng(11)
    names = ["bin", "value", "moment", "times", "times_", "first", "last", "rows", "sensors", "value0", "count", "found"]
    for place, tag in enumerate(names):
        field, other = names[place - 1], names[place - 2]
        data = readings(random, pyarrow.int32(), 60, 0.2, ("a", "b")).rename_columns(["time", tag, field])
        data = data.append_column(other, pyarrow.array(values_of(random, pyarrow.float64(), 60)))
        ask_both(both, f"write {tag}", lambda db: db.write(f"of {tag}", data, tags=tag))
        ask_table(both, f"of {tag}", [field, other], (["b"],), (WHOLE,))
    ask_both(both, "create", lambda db: db.sql('CREATE TABLE clock (bin TIMESTAMP, times TEXT, moment REAL, PRIMARY KEY (times, bin))'))
    data = readings(random, pyarrow.float32(), 60, 0).rename_columns(["bin", "times", "moment"])
    ask_both(both, "write", lambda db: db.table("clock").write(data, time="bin"))
    ask_table(both, "clock", [None], (None, ["b"]), (WHOLE,))


@pytest.mark.parametrize("type_", [pyarrow.int64(), pyarrow.uint64()])
def test_sums_of_whole_numbers_beyond_64_bits(both, type_):
    limits = numpy.iinfo(type_.to_pandas_dtype())
    numbers = {"high": [limits.max] * 5, "low": [limits.min] * 5, "ends": [limits.max, limits.min, limits.max, 1, 2], "both": [limits.max, limits.max - 7, 7, limits.min, limits.min],
               "small": [1, 2, 3, 4, 5], "exact": [2**53, 1, 0, 0, 0]}
    times = pyarrow.array(pandas.date_range(START, periods=5, freq="10min"))
    rows = [pyarrow.table({"time": times, "sensor": [name] * 5, "value": pyarrow.array(values, type_)}) for name, values in numbers.items()]
    ask_both(both, "write", lambda db: db.write("t", pyarrow.concat_tables(rows), tags="sensor"))
    for every, parts in (("1h", [slice(0, 5)]), ("20min", [slice(0, 2), slice(2, 4), slice(4, 5)]), ("1M", [slice(0, 5)])):
        found = ask_both(both, f"sum {every}", lambda db: db.table("t").resample(every, "sum"), False)
        ask_both(both, f"several {every}", lambda db: db.table("t").resample(every, AGGREGATES), False)
        for sensor, values in found.to_dict().items():
            if sensor != "time":
                numpy.testing.assert_allclose(values, [float(sum(numbers[sensor][part])) for part in parts], rtol=1e-15, err_msg=f"{sensor} {every}")


def test_sensors_whose_labels_tell_little(both):
    times = pandas.date_range(START, periods=12, freq="7min")
    frame = pandas.DataFrame({"site": ["a%", "ab", "%", "a", "b", "a%"] * 2, "value": numpy.arange(12.0), "note": list("abcdefghijkl"), "flag": [True, None] * 6, "n": range(12)}, index=times)
    ask_both(both, "write", lambda db: db.write("like", frame, tags="site"))
    ask_table(both, "like", ["value", "note", "flag", "n"], (None, ["a%"], ["%", "a"], ["nobody%"]), (WHOLE, PART, NEVER))
    assert both[1].table("like").rows("a%", field="value").values.tolist() == [[0.0, 5.0, 6.0, 11.0]]

    data = pandas.DataFrame({"site": ["x", "x,y", "x,y", "x,y", "z"], "room": ["y,z", "z", "z#2", "gone", None], "value": numpy.arange(5.0), "seen": times[:5]}, index=times[:5])
    ask_both(both, "write", lambda db: db.write("shared", data, tags=["site", "room"]))
    ask_table(both, "shared", ["value", "seen"], (None, {"room": "z"}, {"site": ["x,y", "x"]}), (WHOLE, PART))
    ask_both(both, "delete", lambda db: db.sql("DELETE FROM shared WHERE room = 'y,z'").to_dict())
    ask_table(both, "shared", ["value", "seen"], (None, {"room": "z"}), (WHOLE,))


def test_sensors_of_one_label_have_the_same_names_everywhere(both):
    data = pandas.DataFrame({"site": ["x", "x,y", "x,y"], "room": ["y,z", "z", "z#2"], "value": [1.0, 2.0, 3.0]}, index=pandas.date_range(START, periods=3, freq="1min"))
    ask_both(both, "write", lambda db: db.write("shared", data, tags=["site", "room"]))
    of_layer = ask_both(both, "layer", lambda db: db.sql("SELECT * FROM rows.shared").schema.names)
    assert of_layer == ["time", "x,y,z", "x,y,z#3", "x,y,z#2"]
    for read in (lambda t: t.rows(), lambda t: t.columns(), lambda t: t.latest(), lambda t: t.resample("1h")):
        assert ask_both(both, "read", lambda db: read(db.table("shared"))).sensors == of_layer[1:]


def test_tags_called_as_the_columns_beside_them(both):
    data = pandas.DataFrame({"time": ["p", "q"], "value": ["r", None], "time#2": "s", "number": [1.5, 2.5]}, index=pandas.DatetimeIndex([START, START + pandas.Timedelta("1min")], name="when"))
    ask_both(both, "write", lambda db: db.write("t", data, time="when", tags=["time", "value", "time#2"]))
    ask_table(both, "t", [None], (None, {"time": "q"}), (WHOLE,))
    for table in (db.table("t") for db in both):
        for found in (table.columns(), table.latest()):
            assert list(found.to_pandas().columns) == found.to_arrow().column_names == found.to_polars().columns == ["time#3", "value#2", "time#2", "time", "value"]
            rows = found.to_pandas().sort_values("time")
            assert rows["time"].tolist() == data.index.tolist() and rows["value"].tolist() == [1.5, 2.5]
            assert rows["time#3"].tolist() == ["p", "q"] and rows["value#2"].tolist() == ["r", None]
            assert list(found.tags) == ["time", "value", "time#2"]


def test_columns_of_one_name_in_an_answer(both):
    for name, value in (("a", 1.5), ("b", 2.5)):
        ask_both(both, "write", lambda db: db.write(name, {"time": pandas.date_range(START, periods=2, freq="1min"), "v": [value, -value]}))
    query = "SELECT a.*, b.*, a.v AS \"v#2\" FROM a JOIN b ON a.time = b.time ORDER BY a.time"
    for db in both:
        expected = {"time": [START, START + pandas.Timedelta("1min")], "v": [1.5, -1.5], "time#2": [START, START + pandas.Timedelta("1min")], "v#3": [2.5, -2.5], "v#2": [1.5, -1.5]}
        assert db.sql(query).to_dict() == expected and list(db.sql(query).to_dict()) == list(expected)
        assert {name: values.tolist() for name, values in db.sql(query).to_numpy().items() if name[0] == "v"} == {name: expected[name] for name in ("v", "v#3", "v#2")}
        assert db.sql(query).to_polars().columns == list(expected)
        assert db.sql(query).to_arrow().column_names == list(db.sql(query).to_pandas().columns) == ["time", "v", "time", "v", "v#2"]


@pytest.mark.parametrize("type_", [pyarrow.int64(), pyarrow.uint64()])
def test_whole_numbers_beside_sensors_with_gaps_are_exact(both, type_):
    limits = numpy.iinfo(type_.to_pandas_dtype())
    exact = [2**53 + 1, limits.max, limits.min, 7]
    times = pyarrow.array(pandas.date_range(START, periods=4, freq="1min"))
    table = lambda sensor, values: pyarrow.table({"time": times, "sensor": [sensor] * 4, "value": pyarrow.array(values, type_), "other": [1.0] * 4})
    rows = pyarrow.concat_tables([table("whole", exact), table("gaps", [limits.max, None, limits.min, 2**53 + 1]), table("nothing", [None] * 4)])
    ask_both(both, "write", lambda db: db.write("t", rows, tags="sensor"))
    ask_table(both, "t", ["value"], (None, ["whole"], ["gaps"], ["nothing"]), (WHOLE,))
    expected = {"whole": exact, "gaps": [limits.max, None, limits.min, 2**53 + 1], "nothing": [None] * 4}
    for db in both:
        columns = db.table("t").columns(field="value")
        found = columns.to_arrow()
        assert found.schema.field("value").type.value_type == type_
        assert dict(zip(found["sensor"].to_pylist(), found["value"].to_pylist())) == expected
        frame = columns.to_pandas()
        assert str(frame["value"].dtype) == {"int64": "Int64", "uint64": "UInt64"}[str(type_)]
        assert {sensor: [None if value is pandas.NA else value for value in values] for sensor, values in frame.groupby("sensor")["value"]} == expected
        assert dict(zip(columns.to_polars()["sensor"], columns.to_polars()["value"].to_list())) == expected
        assert {sensor: values.tolist() for sensor, (_, values) in columns.to_dict().items()} == expected
        # A sensor by itself has the type that it has in `series`.
        nullable = str(frame["value"].dtype)
        for sensors, dtype in (("whole", str(type_)), ("gaps", nullable), (["gaps", "nothing"], nullable)):
            assert str(db.table("t").columns(sensors, field="value").to_pandas()["value"].dtype) == dtype


def test_a_column_called_time_of_another_type_is_asked_about(both):
    instants = pandas.date_range(START, periods=2, freq="1min")
    others = {"numbers": [1, 2], "floats": [1.0, 2.0], "text": ["2024-05-01", "2024-05-02"], "times of day": [datetime.time(1), datetime.time(2)], "lengths": [pandas.Timedelta(1), pandas.Timedelta(2)]}
    for what, values in others.items():
        days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
        for name, times in (("seen", instants), ("day", days)):
            columns = {"time": values, name: times, "v": [1.0, 2.0]}
            for data in (columns, pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table({known: pyarrow.array(column) for known, column in columns.items()})):
                for db in both:
                    for write in (db.write, db.write_wide):
                        with pytest.raises(tidefall.InvalidError, match=f"column 'time' is of type .*, and column '{name}' of type .*: say which is the time, with time='time' or time='{name}'"):
                            write(what, data)
                    assert what not in db.tables()
            ask_both(both, "write", lambda db: db.write(f"{what} by {name}", columns, time=name))
            assert both[0].table(f"{what} by {name}").latest(field="v").time.tolist() == pandas.to_datetime(times)[1:].to_numpy().tolist()
        if what in ("numbers", "text"):
            ask_both(both, "write", lambda db: db.write(what, {"time": values, "seen": instants, "v": [1.0, 2.0]}, time="time"))
            assert both[0].table(what).latest(field="v").time.tolist() == pandas.to_datetime(values)[1:].to_numpy().tolist()
    # A tag, and a column of nothing, are no time.
    tagged = {"time": ["p", "q"], "seen": instants, "v": [1.0, 2.0]}
    assert ask_both(both, "tag", lambda db: db.write("tagged", tagged, tags="time")) == 2
    assert ask_both(both, "nothing", lambda db: db.write("nothing", {"time": None, "seen": instants, "v": [1.0, 2.0]})) == 2


def test_wide_frames_of_many_columns(both):
    """Each name was looked for among all before it: nine seconds for half of these."""
    names = [f"k{number}" for number in range(16_000)]
    frame = pandas.DataFrame(numpy.ones((2, len(names))), columns=names, index=pandas.date_range(START, periods=2, freq="1s"))
    start = time.monotonic()
    assert ask_both(both, "many columns", lambda db: db.write_wide("many", frame)) == 2 * len(names)
    assert time.monotonic() - start < 15
    twice = pyarrow.table([[START.to_pydatetime()], [1.0], [2.0]], names=["time", "a", "a"])
    assert isinstance(ask_both(both, "a name twice", lambda db: db.write_wide("twice", twice)), tidefall.InvalidError)


def test_wide_frames_under_any_names(both):
    frame = pandas.DataFrame({"a": [1.5, 2.5, None], "b": [None, 3.5, 4.5]}, index=pandas.date_range(START, periods=3, freq="1min", name="when"))
    for number, (tag, field) in enumerate([("time", "value"), ("sensor", "time"), ("time", "time_"), ("_time", "value"), ("sensor", "_time"), ("when", "time"), ("a", "b"), ("", "value"), ("sensor", "")]):
        table = f"t{number}"
        ask_both(both, f"write {tag} {field}", lambda db: db.write_wide(table, frame, tag=tag, field=field))
        ask_both(both, f"tables after {tag} {field}", lambda db: sorted(db.tables()))
        if table in both[0].tables():
            assert tag and field
            ask_table(both, table, [None], (None, ["b"]), (WHOLE,))
    for db in both:
        with pytest.raises(tidefall.InvalidError, match="tag 'value' and the field 'value'"):
            db.write_wide("same", frame, tag="value")
        assert "same" not in db.tables()
    for tags, time in (("", None), (["a", ""], None), (["a", "a"], None), ("a", "")):
        assert isinstance(ask_both(both, f"tags {tags} time {time!r}", lambda db: db.write("same", frame, tags=tags, time=time)), tidefall.InvalidError)
    here, there = both
    long = pandas.DataFrame({"x,y": ["p", "q", "p"], "value": [1.0, 2.0, 3.0]}, index=frame.index)
    assert (here.write("comma", long, tags="x,y"), here.write_wide("wide", frame, tag="x,y")) == (3, 4)
    for write in (lambda: there.write("comma", long, tags="x,y"), lambda: there.write_wide("wide", frame, tag="x,y")):
        with pytest.raises(tidefall.UnsupportedError, match="'x,y'.*rename the column"):
            write()


def test_columns_that_are_alike_as_texts(both):
    times = pandas.date_range(START, periods=2, freq="1min")
    alike = {"dictionary": {"time": times, 1: [1.0, 2.0], "1": [3.0, 4.0]}, "pandas": pandas.DataFrame([[1.0, 3.0], [2.0, 4.0]], index=times, columns=[1, "1"])}
    for what, data in alike.items():
        for db in both:
            for write in (db.write, db.write_wide):
                with pytest.raises(tidefall.InvalidError, match="columns 1 and '1' have the same name"):
                    write(what, data)
            with pytest.raises(tidefall.InvalidError, match="columns 'a' and 'a' have the same name"):
                db.write_wide("twice", alike["pandas"].set_axis(["a", "a"], axis=1))
            assert db.tables() == []
    numbered = {"time": times, 1: [1.0, 2.0], 2: [3.0, 4.0]}
    for data in (numbered, pandas.DataFrame(numbered).set_index("time")):
        ask_both(both, "write", lambda db: db.write_wide("t", data))
        assert ask_both(both, "rows", lambda db: db.table("t").rows()).sensors == ["1", "2"]


def test_a_single_value_of_a_dictionary_stands_in_all_rows(both):
    times = pandas.date_range(START, periods=4, freq="1min")
    singles = {
        "text": "pump", "number": 5, "float": 1.5, "flag": True, "nothing": None, "of numpy": numpy.float32(0.25), "text of numpy": numpy.str_("x"), "of Arrow": pyarrow.scalar(7),
        "decimal": decimal.Decimal("2.5"), "date": datetime.date(2024, 5, 1), "moment": pandas.Timestamp(123), "moment of numpy": numpy.datetime64("2024-05-01"),
        "length": pandas.Timedelta(7), "long text": "pump, the second",
    }
    ask_both(both, "write", lambda db: db.write("pumps", {"time": times, "sensor": "pump", "v": [1, 2, 3, 4], **singles}, tags="sensor"))
    pumps = both[0].table("pumps")
    assert pumps.sensors() == {"sensor": ["pump"]} and pumps.rows(field="v").to_dict()["pump"].tolist() == [1, 2, 3, 4]
    expected = {**singles, "of Arrow": 7, "decimal": 2.5, "moment": numpy.datetime64(123, "ns"), "date": numpy.datetime64("2024-05-01"), "length": 7}
    for name, value in expected.items():
        if value is None:
            assert name not in pumps.fields
        else:
            assert pumps.rows(field=name).values.tolist() == numpy.array([[value] * 4]).astype(pumps.rows(field=name).values.dtype).tolist(), name
    ask_table(both, "pumps", list(pumps.fields), times=(WHOLE,))
    ask_both(both, "wide", lambda db: db.write_wide("wide", {"time": times, "a": 1.5, "b": numpy.arange(4.0)}))
    assert both[0].table("wide").rows().to_dict()["a"].tolist() == [1.5] * 4
    # At one time several sensors have a reading.
    ask_both(both, "one time", lambda db: db.write("now", {"time": START, "sensor": ["a", "b"], "v": [1.0, 2.0]}, tags="sensor"))
    assert both[0].table("now").at(START).to_dict() == {"a": 1.0, "b": 2.0}


def test_what_is_no_column_is_refused_with_its_name(both):
    times = pandas.date_range(START, periods=2, freq="1min")
    for db in both:
        for strange in (b"ab", bytearray(b"ab"), {0: 1.0, 1: 2.0}, {1.0, 2.0}, frozenset([1.0, 2.0])):
            for write in (db.write, db.write_wide):
                with pytest.raises(tidefall.InvalidError, match=f"column 'v' is of type {type(strange).__name__}"):
                    write("t", {"time": times, "v": strange})
        for data in ({"time": START, "v": 1.0}, {"time": "2024-01-01", "v": 1.0}):
            with pytest.raises(tidefall.InvalidError, match="how many rows"):
                db.write("t", data)
        with pytest.raises(tidefall.InvalidError):
            db.write("t", {})
        assert db.tables() == []


@pytest.mark.parametrize("sensors", [199, 200])
def test_as_many_sensors_and_fields_as_the_layer_has_columns_and_more(both, sensors):
    fields = 100
    data = {f"f{field:02}": numpy.arange(float(sensors)) + field * sensors for field in range(fields)}
    data = {"time": pandas.date_range(START, periods=sensors, freq="1s"), "sensor": [f"s{sensor:03}" for sensor in range(sensors)], **data}
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    for chosen in (None, ["s017", "s003"]):
        found = ask_both(both, f"rows of {chosen}", lambda db: db.table("t").rows(chosen, field="f42"))
        assert not isinstance(found, Exception) and found.missing == len(found.sensors) * (len(found.sensors) - 1)
        ask_both(both, f"frames of {chosen}", lambda db: str(pieces(db.table("t"), chosen, "f42")))
    assert len(both[1].table("t").rows(field="f42")) == sensors
    ask_both(both, "some", lambda db: db.table("t").rows(field="f42", between=(4_205, 8_000)))


def test_thousands_of_sensors_side_by_side(both):
    sensors = [f"s{sensor:04}" for sensor in range(3_000)]
    data = {"time": [START] * 3_000 + [START + pandas.Timedelta("1h")] * 3_000, "sensor": sensors * 2, "value": numpy.arange(6_000)}
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    found = ask_both(both, "rows", lambda db: db.table("t").rows())
    assert found.sensors == sensors and found.values.tolist() == numpy.arange(6_000).reshape(2, 3_000).T.tolist()
    ask_both(both, "frames", lambda db: pandas.concat([piece.to_pandas() for piece in db.table("t").frames(rows=1)]).to_dict("list"))


def test_pieces_from_the_first_to_the_last_nanosecond(both):
    last = 2**63 - 1
    times_of = lambda table, **options: [time for piece in table.frames(**options) for time in piece.time.view("i8").tolist()]
    times = numpy.array([last - 10_000, last - 5, last - 1, last])
    ask_both(both, "write", lambda db: db.write("t", {"time": times, "sensor": list("abab"), "value": [1.0, 2.0, 3.0, 4.0]}, time="time", tags="sensor"))
    for rows in (None, 1, 2, 100):
        for start, end in ((None, None), (last - 5, None), (last, None), (None, last), (last - 1, last)):
            found = ask_both(both, f"pieces of {rows} from {start} to {end}", lambda db: times_of(db.table("t"), start=start, end=end, rows=rows))
            assert found == [time for time in times.tolist() if (start is None or time >= start) and (end is None or time < end)]
    ask_table(both, "t", [None], (None, ["b"]), (WHOLE, (last - 5, last)))
    ends = numpy.array([-(2**63), 1 - 2**63, 0, last])
    ask_both(both, "write", lambda db: db.write("ends", {"time": ends, "value": [1.0, 2.0, 3.0, 4.0]}, time="time"))
    for rows in (None, 1, 2):
        assert ask_both(both, f"pieces of {rows}", lambda db: times_of(db.table("ends"), rows=rows)) == ends.tolist()


@pytest.mark.parametrize("is_regular", [True, False])
def test_pieces_beside_a_reading_far_off(both, is_regular):
    count, rows = 86_400, 10_000
    seconds = numpy.arange(count) if is_regular else numpy.sort(numpy.random.default_rng(12).choice(10 * count, count, replace=False)) / 10
    times = (START + pandas.to_timedelta(seconds, unit="s")).to_numpy()
    day = pyarrow.table({"time": times, "sensor": ["a"] * count, "value": numpy.arange(float(count))})
    far = pyarrow.table({"time": numpy.array(["1970-01-02", "2250-01-01"], "M8[ns]"), "sensor": ["a", "b"], "value": [-1.0, -2.0]})
    for data in (far, day):
        ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    both[0].cascade("t", to="long")
    for db in both:
        questions = []
        table = db.table("t")
        table._core = Asking(db._core, questions)
        found = list(table.frames(rows=rows))
        assert max(map(len, found)) <= 3 * rows and sum(map(len, found)) == count + 2
        whole = db.table("t").rows()
        numpy.testing.assert_array_equal(numpy.concatenate([piece.time for piece in found]), whole.time)
        numpy.testing.assert_array_equal(numpy.concatenate([piece.values for piece in found], axis=1), whole.values)
        assert questions.count("frame") <= 6 * count // rows and questions.count("extent") <= 10 * count // rows
        assert [len(piece) for piece in db.table("t").frames(end="2000-01-01")] == [1]


@pytest.mark.parametrize("sensors", [1, 2, 40])
def test_pieces_of_sensors_whose_clocks_differ(both, sensors):
    """Each time is of one sensor alone, so that a piece had as many rows as all of them together."""
    count, rows = 300, 50
    times = START + pandas.to_timedelta(numpy.arange(count) * 10_000, unit="ms")
    parts = [pandas.DataFrame({"time": times + pandas.Timedelta(7 * sensor, "ms"), "sensor": f"s{sensor:02}", "value": 1.0 * sensor}) for sensor in range(sensors)]
    # Later they have one clock again.
    parts += [pandas.DataFrame({"time": times + pandas.Timedelta(1, "D"), "sensor": f"s{sensor:02}", "value": 2.0}) for sensor in range(sensors)]
    data = pandas.concat(parts)
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    both[0].cascade("t", to="long")
    for db in both:
        questions = []
        table = db.table("t")
        table._core = Asking(db._core, questions)
        found = list(table.frames(rows=rows))
        assert max(map(len, found)) <= 2 * rows
        numpy.testing.assert_array_equal(numpy.concatenate([piece.time for piece in found]), numpy.unique(data["time"]))
        assert sum(int((~numpy.isnan(piece.values)).sum()) for piece in found) == len(data)
        assert questions.count("frame") <= 3 * (sensors + 1) * count // rows


def test_pieces_of_clocks_that_differ_by_a_nanosecond(both):
    """Pieces stayed as short as the first ones, over whole seconds without a reading."""
    times = [START + pandas.Timedelta(second, "s") + pandas.Timedelta(sensor, "ns") for sensor in range(3) for second in range(5)]
    data = pandas.DataFrame({"time": times, "sensor": numpy.repeat(["a", "b", "c"], 5), "value": 1.5})
    ask_both(both, "write", lambda db: db.write("t", data, tags="sensor"))
    for db in both:
        for rows in (1, 2, 3):
            questions = []
            table = db.table("t")
            table._core = Asking(db._core, questions)
            found = list(table.frames(rows=rows))
            assert max(map(len, found)) <= 2 * rows and sum(map(len, found)) == 15
            assert questions.count("frame") < 300


def test_bounds_mean_what_they_say(both):
    """Over HTTP they lost their last digit; no bound was one, of infinity."""
    random = numpy.random.default_rng(15)
    values = numpy.concatenate([random.normal(100, 10, 200), [-numpy.inf, numpy.inf, numpy.nan]])
    times = (START + pandas.to_timedelta(numpy.arange(len(values)), unit="s")).to_numpy()
    ask_both(both, "write", lambda db: db.write("t", {"time": times, "value": values}))
    kept = lambda db, **bounds: db.table("t").rows(**bounds).values[0].tolist()
    for value in values[:200]:
        for bounds in ({"between": (value, value)}, {"outside": (value, None)}, {"outside": (None, value)}):
            found = ask_both(both, str(bounds), lambda db: kept(db, **bounds))
            low, high = next(iter(bounds.values()))
            inside = (values >= (low if low is not None else -numpy.inf)) & (values <= (high if high is not None else numpy.inf))
            outside = (values <= low) if high is None else (values >= high)
            assert found == values[inside if "between" in bounds else outside].tolist()
    for bounds in ({"outside": (None, None)}, {"between": (numpy.nan, 5)}, {"between": (numpy.inf, None)}, {"between": (None, -numpy.inf)}):
        ask_both(both, str(bounds), lambda db: kept(db, **bounds))


def test_no_time_has_no_pieces(both):
    """They were divided again and again."""
    times = (START + pandas.to_timedelta(numpy.arange(20_000), unit="s")).to_numpy()
    ask_both(both, "write", lambda db: db.write("t", {"time": times, "value": numpy.arange(20_000.0)}))
    both[0].cascade("t", to="long")
    for rows in (1, 100, None):
        for at in (times[7], times[7] + 1, times[-1]):
            assert ask_both(both, "no time", lambda db: len(list(db.table("t").frames(start=at, end=at, rows=rows)))) == 0


class Asking:
    """Passes questions on, and takes down which they are."""

    def __init__(self, core, questions):
        self.core, self.questions = core, questions

    def __getattr__(self, name):
        self.questions.append(name)
        return getattr(self.core, name)


def test_fields_become_wider(both):
    """Numbers that do not fit make a field one that holds them, and a field without values takes any type."""
    times = lambda first, count: pandas.date_range(START + pandas.Timedelta(first, "D"), periods=count, freq="D")
    write = lambda name, first, values: ask_both(both, name, lambda db: db.write(name, pandas.DataFrame({"time": times(first, len(values)), "v": values}), time="time"))
    types = lambda name: ask_both(both, name, lambda db: db.table(name).fields)
    rows = lambda name: ask_both(both, name, lambda db: db.sql(f"SELECT v FROM {name} ORDER BY time").to_arrow().column("v"))
    for chunks, name in ((1, "once"), (4, "often")):
        for chunk in range(chunks):
            assert write(name, chunk, [chunk]) == 1
        assert write(name, 10, [1.5, float("nan")]) == 2
        assert types(name) == {"v": "DOUBLE"} and rows(name).to_pylist()[:chunks] == list(map(float, range(chunks)))
    write("beyond", 0, [2**53 + 1])
    assert isinstance(write("beyond", 1, [0.5]), tidefall.ConflictError)
    assert types("beyond") == {"v": "BIGINT"} and rows("beyond").to_pylist() == [2**53 + 1]
    wide = lambda first, values: ask_both(both, "wide", lambda db: db.write_wide("wide", pandas.DataFrame({"a": values, "b": values}, times(first, 2)), tag="sensor", field="v"))
    assert wide(0, [1, 2]) == 4 and wide(2, [0.5, 3]) == 4
    assert types("wide") == {"v": "DOUBLE"}
    assert ask_both(both, "wide", lambda db: db.sql("SELECT sum(v) FROM wide").to_arrow().to_pylist()[0]) == {"sum(v)": 13.0}
    ask_both(both, "none", lambda db: db.sql("CREATE TABLE none (time TIMESTAMP, v BIGINT)").to_arrow())
    assert write("none", 0, ["high", "low"]) == 2
    assert types("none") == {"v": "TEXT"}


def test_parameters(both):
    instant = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
    values = [
        None, True, False, 0, -7, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, -0.1, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"),
        "", "it's; -- $1 ?", "naïve\n\\", numpy.int16(5), numpy.float32(0.5), numpy.bool_(True), numpy.str_("a"), instant,
        instant.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))), pandas.Timestamp("2024-02-29T12:00:00.123456789"),
        pandas.Timestamp("1901-01-01T00:00:00.000000001", tz="Europe/Berlin"), numpy.datetime64("2024-02-29T12:00:00.123456789"),
        pandas.NaT, numpy.datetime64("NaT"), decimal.Decimal("1.25"), datetime.date(2024, 2, 29),
        decimal.Decimal("NaN"), decimal.Decimal("sNaN"), datetime.date.min, datetime.date.max, datetime.timedelta(days=-1, microseconds=1), numpy.timedelta64(5, "ns"),
        numpy.timedelta64("NaT"), pandas.Timedelta("1h 30m"),
    ]
    sql = "SELECT " + ", ".join(f"${number} AS c{number}, arrow_typeof(${number}) AS t{number}" for number in range(1, len(values) + 1))
    here, there = (db.sql(sql, values).to_arrow() for db in both)
    assert here.equals(there) or repr(here.to_pylist()) == repr(there.to_pylist())
    assert here.schema == there.schema
    found = here.to_pylist()[0]
    assert [found[f"c{number}"] for number in (1, 2, 5, 6, 8, 9, 17)] == [None, True, -7, 2**63 - 1, 2**64 - 1, 1.5, "it's; -- $1 ?"]
    assert here.column("c25")[0].value == pandas.Timestamp("2024-02-29T12:00:00.123456789").value
    assert here.column("c26")[0].value == pandas.Timestamp("1901-01-01T00:00:00.000000001", tz="Europe/Berlin").value
    kinds = ["Float64", "Float64", "Date32", "Date32", *["Interval(MonthDayNano)"] * 2, "Null", "Interval(MonthDayNano)"]
    assert [found[f"t{number}"] for number in range(32, 40)] == kinds
    for db in both:
        assert db.sql("SELECT DATE $1 + $2 AS t", ["2024-02-28", datetime.timedelta(1, 1)]).to_arrow().to_pylist() == [{"t": datetime.datetime(2024, 2, 29, 0, 0, 1)}]
        db.write("plant", {"time": [instant, instant + datetime.timedelta(1)], "sensor": ["a'b", "c"], "value": [1.0, 2.0]}, tags="sensor")
        assert db.sql("SELECT value FROM plant WHERE sensor = ? AND time <= ?", ["a'b", instant]).to_arrow().column(0).to_pylist() == [1.0]
        # Decimals are numbers, whose digits all count.
        decimals = [decimal.Decimal(text) for text in ("9", "10", "9.0", "0.1", "1e400")]
        assert db.sql("SELECT $1 < $2 AS less, $1 = $3 AS same, $4 + $1 AS sum", decimals[:4]).to_arrow().to_pylist() == [{"less": True, "same": True, "sum": 9.1}]
        for value in (decimals[4], decimal.Decimal("0.12345678901234567890")):
            with pytest.raises(tidefall.InvalidError, match="more digits than a DOUBLE"):
                db.sql("SELECT $1", [value])
        with pytest.raises(tidefall.InvalidError, match="SET takes no parameters"):
            db.sql("SET datafusion.execution.batch_size = $1", [4096])
        random = numpy.random.default_rng(7).normal(0, 100, 1000)
        assert [column[0].as_py() for column in db.sql("SELECT " + ", ".join("?" for _ in random), random).to_arrow().columns] == list(random)
        assert db.sql("SELECT value FROM plant ORDER BY time LIMIT $1", (1,)).to_arrow().column(0).to_pylist() == [1.0]
        assert db.sql("SELECT $1", ["x" * 100_000]).to_arrow().column(0).to_pylist() == ["x" * 100_000]
        for values, told in [([], "the parameter $1"), ([1, 2], "2 values are given"), ("a", "a list"), ({"a": 1}, "a list"), ([object()], "parameter 1"), ([2**64], "parameter 1"), ([numpy.timedelta64(5)], "no unit"), ({1}, "a list"),
                             ([["a", "b"]], "write IN"), ([numpy.arange(3)], "write IN"), ([numpy.timedelta64(10**6, "D")], "64 bits of nanoseconds"),
                             ([numpy.datetime64("3000-01-01")], "3000-01-01"), ([datetime.datetime(3000, 1, 1)], "3000-01-01")]:
            with pytest.raises(tidefall.InvalidError, match=told.replace("$", r"\$")):
                db.sql("SELECT $1", values)

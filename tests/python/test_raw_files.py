"""Layers over real files, in every mixture of models, against pandas computed from the same files."""

import itertools
import os
import pathlib

import numpy
import pandas
import pandas.testing
import pytest

import tidefall

CARRIED = pathlib.Path(__file__).resolve().parents[2] / "examples/data"
# File, column of time, tags, fields. The last line wins where a time comes twice.
FILES = {
    "weather_nyc": ("time_hour", ["origin"], ["temp", "humid", "precip"]),
    "aircraft": ("timestamp", ["icao24"], ["altitude", "groundspeed", "latitude"]),
    "machine_temperature": ("timestamp", [], ["value"]),
}
# Which models hold readings when the questions are asked.
MIXTURES = [mixture for count in (1, 2, 3) for mixture in itertools.combinations(["kv", "short", "long"], count)]
ROUNDS = int(os.environ.get("TIDEFALL_ROUNDS", "2"))


def read(name):
    """The file as pandas reads it: time, tags and fields, in the order of its lines."""
    time, tags, fields = FILES[name]
    frame = pandas.read_csv(CARRIED / f"{name}.csv.gz", low_memory=False)
    frame = frame[[time, *tags, *fields]].rename(columns={time: "time"})
    frame["time"] = pandas.to_datetime(frame.time, utc=True).dt.tz_localize(None).astype("datetime64[ns]")
    frame[fields] = frame[fields].astype(float)
    # A line without a value of any field says nothing.
    return frame.dropna(subset=fields, how="all")


def fill(db, frame, tags, mixture, random):
    """Writes the lines in their order, cut at random, so that some lie in each model of the mixture."""
    columns = [*(f"{tag} TEXT" for tag in tags), *(f"{field} DOUBLE" for field in frame.columns if field not in ["time", *tags])]
    key = f", PRIMARY KEY ({', '.join([*tags, 'time'])})" if tags else ""
    # The readings are old; these ages keep them where they are put.
    db.sql(f"CREATE TABLE readings (time TIMESTAMP, {', '.join(columns)}{key}) WITH (cascade = 'kv 20000d, short 30000d, long')").to_dict()
    cuts = numpy.sort(random.integers(1, len(frame), len(mixture) - 1))
    for model, part in zip(reversed(mixture), numpy.split(numpy.arange(len(frame)), cuts)):
        if len(part):
            db.write("readings", frame.iloc[part], time="time", tags=tags)
        if model != "kv":
            db.cascade("readings", to=model)


@pytest.mark.parametrize("mixture", MIXTURES, ids="+".join)
@pytest.mark.parametrize("name", FILES)
def test_layers_over_real_files(tmp_path, name, mixture):
    _, tags, fields = FILES[name]
    frame = read(name)
    model = frame.groupby([*tags, "time"], as_index=False).agg({field: "last" for field in fields})
    for round_ in range(ROUNDS):
        random = numpy.random.default_rng([round_, len(mixture), *name.encode()])
        with tidefall.open(str(tmp_path / str(round_)), memory_mib=64) as db:
            fill(db, frame, tags, mixture, random)
            objects = {path.suffix[1:] for path in (tmp_path / str(round_) / "objects").iterdir()}
            assert objects & {"short", "long"} == set(mixture) - {"kv"}, "readings lie elsewhere"
            for _ in range(4):
                ask(db, model, tags, str(random.choice(fields)), random)


def ask(db, model, tags, field, random):
    """Random sensors and times of one field, in every layer and form."""
    table = db.table("readings")
    names = model[tags[0]].unique().tolist() if tags else ["value"]
    chosen = random.choice(names, random.integers(1, len(names) + 1), replace=False).tolist()
    wanted = chosen if tags else None
    first, last = model.time.min(), model.time.max()
    start = first + (last - first) * random.uniform(-0.05, 0.9)
    end = start + (last - first) * random.uniform(0, 1)
    keyed = model.assign(sensor=model[tags[0]] if tags else "value").dropna(subset=[field])
    within = keyed[keyed.sensor.isin(chosen) & (keyed.time >= start) & (keyed.time < end)]
    expected = within.pivot(index="time", columns="sensor", values=field).sort_index().reindex(columns=chosen)

    found = table.rows(wanted, start, end, field=field)
    # Times at which other fields alone have a value are rows, too.
    pandas.testing.assert_frame_equal(found.to_pandas().dropna(how="all"), expected, check_names=False, check_freq=False, check_index_type=False)
    numpy.testing.assert_array_equal(found.to_numpy(), found.to_pandas().to_numpy())
    assert found.to_arrow().to_pandas().set_index("time").equals(found.to_pandas().rename_axis(index="time")) and found.to_polars().height == len(found)
    columns = table.columns(wanted, start, end, field=field)
    for sensor, (times, values) in columns.to_dict().items():
        rows = within[within.sensor == sensor].sort_values("time")
        has_value = ~numpy.isnan(values)
        numpy.testing.assert_array_equal(times[has_value], rows.time.to_numpy())
        numpy.testing.assert_array_equal(values[has_value], rows[field].to_numpy())
    pieces = [piece.to_pandas() for piece in table.frames(wanted, start, end, field=field, rows=int(random.integers(1, 3000)))]
    assert (pandas.concat(pieces) if pieces else found.to_pandas()).equals(found.to_pandas())

    instant = model.time.iloc[int(random.integers(0, len(model)))]
    assert table.at(instant, field=field).to_dict() == keyed[keyed.time == instant].set_index("sensor")[field].to_dict()
    assert table.latest(field=field).to_dict() == keyed.sort_values("time").groupby("sensor")[field].last().to_dict()
    assert table.lowest(wanted, start, end, field=field).to_dict() == within.groupby("sensor")[field].min().reindex(chosen).dropna().to_dict()
    every, width = [("1h", "1h"), ("1d", "1D"), ("7m", "7min")][int(random.integers(0, 3))]
    for how in ("mean", "max", "last"):
        bins = within.sort_values("time").groupby(["sensor", within.time.dt.floor(width)])[field]
        bins = getattr(bins, how)().unstack("sensor").reindex(columns=chosen)
        found = table.resample(every, how, wanted, start, end, field=field).to_pandas().dropna(how="all")
        pandas.testing.assert_frame_equal(found, bins, check_names=False, check_freq=False, check_index_type=False, rtol=1e-9)

    condition = f" AND {tags[0]} IN ({', '.join(repr(name) for name in chosen)})" if tags else ""
    sql = db.sql(f'SELECT {", ".join([*tags, "time", field])} FROM readings WHERE time >= \'{start}\' AND time < \'{end}\' AND {field} IS NOT NULL{condition} ORDER BY {", ".join([*tags, "time"])}').to_pandas()
    rows = within[[*tags, "time", field]].sort_values([*tags, "time"], ignore_index=True)
    pandas.testing.assert_frame_equal(sql.astype({tag: object for tag in tags}), rows, check_dtype=False)

"""Records of the papers' two workloads, and what is asked of them.

`Taxi`: trips of real files, each with another day of 2013 and moved by some fifty metres, in the order in which they end. `Ghcn`: observations
of a real station of GHCN-Daily, spread over stations of our own, day by day. Both are made in batches of a million, the same for every system.
"""

import pathlib

import numpy
import pandas
import pyarrow

BATCH_ROWS = 1_000_000
START = 1_356_998_400  # 2013-01-01
DAY = 86_400
CARRIED = pathlib.Path(__file__).resolve().parents[3] / "examples" / "data"
# Rows that say which ranges hold how many.
SAMPLE_ROWS = 200_000


class Box:
    """A question by a box: ranges of some columns, both ends included."""

    def __init__(self, sides, measure):
        self.sides, self.measure = sides, measure

    def sql(self, table):
        where = " AND ".join(f"{column} >= {low!r} AND {column} <= {high!r}" for column, low, high in self.sides)
        return f"SELECT count(*), avg({self.measure}) FROM {table} WHERE {where}"


class Taxi:
    """14 columns of the paper's listing without the three that name the cab, and with the fare: twelve."""

    name, table = "taxi", "trips"
    dimensions = ["pickup_latitude", "pickup_longitude", "pickup_datetime", "passenger_count", "trip_time_in_secs"]
    columns = {
        "vendor_id": "SMALLINT", "rate_code": "SMALLINT", "pickup_datetime": "BIGINT", "dropoff_datetime": "BIGINT",
        "passenger_count": "SMALLINT", "trip_time_in_secs": "INTEGER", "trip_distance": "DOUBLE",
        "pickup_longitude": "DOUBLE", "pickup_latitude": "DOUBLE", "dropoff_longitude": "DOUBLE", "dropoff_latitude": "DOUBLE",
        "fare_amount": "DOUBLE",
    }
    # The best order that we know for those who have one: squares of a kilometre, then time.
    duckdb_order = "floor(pickup_latitude * 100), floor(pickup_longitude * 100), pickup_datetime"
    clickhouse_order = "mortonEncode(toUInt32(greatest(0, (pickup_latitude + 90) * 100)), toUInt32(greatest(0, (pickup_longitude + 180) * 100))), pickup_datetime"
    measure = "fare_amount"

    def __init__(self, data, rows):
        self.rows = rows
        frames = [pandas.read_csv((pathlib.Path(data) / "taxi/2016_01_yellow.csv.gz") if data else CARRIED / "taxi.csv.gz")]
        if data:
            frames.append(pandas.read_csv(pathlib.Path(data) / "taxi/2015_01.csv.gz").rename(columns={"VendorID": "vendorid", "RateCodeID": "ratecodeid"}))
        base = pandas.concat(frames, ignore_index=True)
        pickup, dropoff = (pandas.to_datetime(base[f"tpep_{end}_datetime"], utc=True, format="ISO8601") for end in ("pickup", "dropoff"))
        self.second = (pickup.dt.hour * 3600 + pickup.dt.minute * 60 + pickup.dt.second).to_numpy()
        self.seconds = (dropoff - pickup).dt.total_seconds().clip(0, DAY).to_numpy().astype(numpy.int64)
        self.base = {name: base[name].to_numpy() for name in ("vendorid", "ratecodeid", "passenger_count", "trip_distance", "fare_amount")}
        self.places = {end: base[[f"{end}_longitude", f"{end}_latitude"]].to_numpy() for end in ("pickup", "dropoff")}

    def batch(self, number, rows=BATCH_ROWS):
        random = numpy.random.default_rng([2013, number])
        trip = random.integers(0, len(self.second), rows)
        # Batches follow each other in time, and so do the trips of one.
        batches = -(-self.rows // BATCH_ROWS)
        first, last = number * 365 // batches, max((number + 1) * 365 // batches, number * 365 // batches + 1)
        pickup = START + random.integers(first, last, rows) * DAY + (self.second[trip] + random.integers(-900, 900, rows)) % DAY
        seconds = numpy.maximum(0, self.seconds[trip] + random.integers(-60, 60, rows))
        order = numpy.argsort(pickup + seconds, kind="stable")
        trip, pickup, seconds = trip[order], pickup[order], seconds[order]
        places = {}
        for end, known in self.places.items():
            place = known[trip]
            # About a half of a thousandth of a degree; what has no position keeps none.
            moved = numpy.round(place + random.normal(0, 0.0005, place.shape), 6)
            places[end] = numpy.where(place == 0, 0.0, moved)
        part = {name: values[trip] for name, values in self.base.items()}
        return pyarrow.table({
            "vendor_id": part["vendorid"].astype(numpy.int16), "rate_code": part["ratecodeid"].astype(numpy.int16),
            "pickup_datetime": pickup, "dropoff_datetime": pickup + seconds,
            "passenger_count": part["passenger_count"].astype(numpy.int16), "trip_time_in_secs": seconds.astype(numpy.int32),
            "trip_distance": numpy.round(part["trip_distance"] + random.integers(0, 20, rows) / 100, 2),
            "pickup_longitude": places["pickup"][:, 0], "pickup_latitude": places["pickup"][:, 1],
            "dropoff_longitude": places["dropoff"][:, 0], "dropoff_latitude": places["dropoff"][:, 1],
            "fare_amount": part["fare_amount"].astype(float),
        })

    def queries(self):
        """The sixteen of the paper: mean passengers of squares of a kilometre, and in time, passengers and length."""
        lat, lon, at, passengers, seconds = self.dimensions
        for number, bounds in enumerate(TAXI_BOXES, 1):
            sides = [(lat, *bounds[0:2]), (lon, *bounds[2:4])]
            where = [f"{column} >= {low} AND {column} <= {high}" for column, low, high in sides]
            if len(bounds) > 4:
                where.append(f"{at} >= {bounds[4]} AND {at} <= {bounds[5]}")
            where.extend(f"{column} <= {most}" for column, most in zip((passengers, seconds), bounds[6:]))
            yield f"q{number}", f"SELECT avg({passengers}) FROM {self.table} WHERE {' AND '.join(where)}"


# Latitude and longitude from and to; time from and to; most passengers; most seconds.
TAXI_BOXES = [
    (40.7645342324, 40.7735173889, -73.888983772, -73.8799803018),
    (40.7567579105, 40.7657410671, -74.0104771822, -74.0014687259),
    (40.8350997626, 40.8440829192, -73.9408829776, -73.9318997698),
    (40.7313968589, 40.7403800154, -73.9281950202, -73.9191664656),
    (40.6395406815, 40.648523838, -73.7786922958, -73.7695406582),
    (40.7766603868, 40.7856435434, -73.9849723371, -73.9759755461, 1357318152, 1387058055),
    (40.7518744163, 40.7608575729, -73.9920231278, -73.9830112587, 1387425722, 13893354509),
    (40.7390082969, 40.7479914535, -73.8975113729, -73.8884894693, 1358101957, 1384534322),
    (40.7441121105, 40.7530952671, -73.9241726808, -73.9151549391, 1357228624, 1380690924, 5),
    (40.8095885444, 40.8185717009, -73.945678875, -73.9366935177, 1358303391, 1388758328, 5),
    (40.7405100269, 40.7494931834, -73.8848861323, -73.875865478, 1360644783, 1378268507, 6, 1800),
    (40.7360481905, 40.7450313471, -73.9318252224, -73.9228007954, 1359423704, 1377980909, 2, 3600),
    (40.7973076091, 40.8062907656, -73.9652836263, -73.9562951477, 1358294025, 1369831329, 1, 1800),
    (40.7502443406, 40.7592274972, -74.0404189891, -74.0314059325, 1366484530, 1381908856, 2, 1800),
    (40.8966859263, 40.9056690829, -73.7811546197, -73.7721573685, 1361340581, 1365432055, 2, 3600),
    (40.64089501, 40.6498781666, -73.7831658104, -73.7740165755, 1385293736, 1390390061, 1, 3600),
]


class Ghcn:
    """The paper's seven columns; what is asked by are all but the name of the station."""

    name, table = "ghcn", "observations"
    dimensions = ["element_id", "latitude", "longitude", "elevation", "element_value", "time"]
    columns = {
        "time": "BIGINT", "station_id": "VARCHAR", "longitude": "DOUBLE", "latitude": "DOUBLE", "elevation": "DOUBLE",
        "element_id": "BIGINT", "element_value": "INTEGER",
    }
    duckdb_order = "element_id, floor(latitude), floor(longitude), time"
    clickhouse_order = "element_id, mortonEncode(toUInt32(latitude + 90), toUInt32(longitude + 180)), time"
    measure = "element_value"

    # Where stations are: how many, latitudes, longitudes and elevations from and to.
    REGIONS = [
        (4_000, -60, 75, -180, 180, 0, 900), (9_000, 25, 49, -124, -67, 0, 1_200), (900, 37, 41, -109, -102, 1_000, 3_800),
        (800, 37, 40, -102, -94.7, 200, 1_200), (700, 50.5, 54.6, -5.4, 1.7, 1, 400), (400, 34.4, 38, 126.3, 129.6, 2, 800),
        (60, -30, 40, -80, 100, 4_001, 5_000), (40, 31, 36, 35, 117, -350, -1), (1, 63.95, 63.95, -152.2815, -152.2815, 3_600, 3_600),
    ]

    def __init__(self, data, rows):
        self.rows = rows
        if not data:
            raise SystemExit("GHCN-Daily is not carried: name the folder of the full data sets by --data")
        base = pandas.read_csv(pathlib.Path(data) / "ghcn/central_park_1869_2020.csv.gz")
        self.elements = numpy.array([int.from_bytes(name.encode(), "big") for name in base["element"]], dtype=numpy.int64)
        self.values = base["value"].to_numpy(numpy.int32)
        random = numpy.random.default_rng(1869)
        draw = lambda low, high, count, digits: numpy.round(random.uniform(low, high, count), digits)
        parts = [(draw(south, north, count, 4), draw(west, east, count, 4), draw(low, high, count, 1)) for count, south, north, west, east, low, high in self.REGIONS]
        self.latitude, self.longitude, self.elevation = map(numpy.concatenate, zip(*parts))
        self.stations = pyarrow.array([f"STN{number:08}" for number in range(len(self.latitude))])

    def batch(self, number, rows=BATCH_ROWS):
        random = numpy.random.default_rng([1869, number])
        row = random.integers(0, len(self.values), rows)
        station = random.integers(0, len(self.latitude), rows)
        # Some sixty thousand observations a day, as all stations of the world make.
        day = (number * BATCH_ROWS + numpy.arange(rows)) // 60_000
        return pyarrow.table({
            "time": START + day * DAY, "station_id": self.stations.take(pyarrow.array(station)),
            "longitude": self.longitude[station], "latitude": self.latitude[station], "elevation": self.elevation[station],
            "element_id": self.elements[row], "element_value": self.values[row],
        })

    def queries(self):
        """The ten of the paper. Of the last, the elevations: which stations have one of them is no one answer."""
        ask = lambda shown, where: f"SELECT {shown} FROM {self.table} WHERE {where}"
        snow, tmin, tmax, tornado, mean, depth, haze, dust = (int.from_bytes(name, "big") for name in (b"SNOW", b"TMIN", b"TMAX", b"WT10", b"TAVG", b"SNWD", b"WT08", b"WT07"))
        yield "q1", ask("avg(elevation)", f"element_id = {snow}")
        yield "q2", ask("avg(element_value) / 10", f"elevation > 4000 AND element_id = {tmin}")
        yield "q3", ask("avg(element_value)", f"longitude > -109.0 AND longitude < -102.0 AND latitude > 37.0 AND latitude < 41.0 AND elevation > 1000 AND element_id = {snow}")
        yield "q4", ask("count(*)", f"longitude > -102.0 AND longitude < -94.633 AND latitude > 37.0 AND latitude < 40.0 AND element_id = {tornado}")
        yield "q5", ask("avg(element_value) / 10.0", f"longitude > -5.4327 AND longitude < 1.7688 AND latitude > 50.447 AND latitude < 54.6961 AND element_id = {mean}")
        yield "q6", ask("avg(element_value)", f"element_id = {depth} AND latitude >= 63.9 AND latitude <= 64.0 AND longitude > -152.282 AND longitude < -152.281")
        yield "q7", ask("max(element_value) / 10.0", f"element_id = {tmax} AND longitude >= 126.227 AND longitude <= 129.6442 AND latitude >= 34.3117 AND latitude <= 38.1043")
        yield "q8", ask("count(*)", f"element_id = {tmax} AND element_value > 344")
        yield "q9", ask("count(*)", f"elevation < 0 AND elevation > -999.9 AND element_id = {haze}")
        yield "q10", f"SELECT DISTINCT elevation FROM {self.table} WHERE element_id = {dust} ORDER BY elevation DESC LIMIT 3"


WORKLOADS = {"taxi": Taxi, "ghcn": Ghcn}


def boxes(workload, count):
    """Boxes over one to five dimensions around rows that there are, which hold one record to half of all were dimensions independent."""
    random = numpy.random.default_rng(count)
    batches = -(-workload.rows // BATCH_ROWS)
    parts = [workload.batch(number).slice(0, max(1, SAMPLE_ROWS // batches)) for number in range(0, batches, max(1, batches // 10))]
    sample = pyarrow.concat_tables(parts).select(workload.dimensions)
    columns = {name: numpy.sort(sample[name].to_numpy()) for name in workload.dimensions}
    for _ in range(count):
        row = int(random.integers(sample.num_rows))
        chosen = random.permutation(workload.dimensions)[: int(random.integers(1, 6))]
        part = numpy.exp(random.uniform(numpy.log(1 / workload.rows), numpy.log(0.5))) ** (1 / len(chosen))
        sides = []
        for name in chosen:
            values = columns[name]
            here = sample[name][row].as_py()
            rank = numpy.searchsorted(values, here) / len(values)
            low, high = (values[int(numpy.clip(rank + by, 0, 1) * (len(values) - 1))].item() for by in (-part / 2, part / 2))
            sides.append((str(name), min(low, here), max(high, here)))
        yield Box(sides, workload.measure)


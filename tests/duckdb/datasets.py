"""The real data sets: how each is imported into Tidefall, and how DuckDB loads the same rows.

Time is called `time` on both sides, tags are text, and every other column keeps its name. A table
whose `small` is given can be tested with the data that the repository carries.
"""

import dataclasses
import glob
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SMALL_DATA = REPOSITORY / "examples" / "data"

D, I, B, T = "DOUBLE", "BIGINT", "BOOLEAN", "VARCHAR"


@dataclasses.dataclass
class Table:
    """One table: its files, its import command, its identity and its columns."""

    name: str
    files: str  # below the data folder
    rows: int  # readings in the files
    import_args: list
    time_sql: str  # how DuckDB computes the time from the file's columns, all of them text
    tags: dict  # name -> SQL of its value
    fields: dict  # name -> DuckDB type
    slice: tuple  # a time range of some thousand rows, for row-by-row comparison
    kept: int = None  # identities, where fewer than rows: the later line wins
    small: str = None  # a file of examples/data
    small_rows: int = None
    small_kept: int = None

    def paths(self, data):
        """The files to import: from the data folder, or the carried ones when it is None."""
        if data is None:
            return [str(SMALL_DATA / self.small)] if self.small else []
        return sorted(glob.glob(str(pathlib.Path(data) / self.files)))

    def rows_read(self, data):
        return self.rows if data else self.small_rows

    def rows_kept(self, data):
        kept = self.kept if data else self.small_kept
        return kept or self.rows_read(data)

    def identity(self):
        return ["time", *self.tags]

    def columns(self):
        return ["time", *self.tags, *self.fields]

    def load(self, duck, data):
        """Creates the table in DuckDB. Lines of one identity merge field by field: the last value
        that is there wins, which is what arg_max does, as it passes over nulls."""
        fields = {name: f'try_cast("{name}" AS {type_})' for name, type_ in self.fields.items()}
        tags = ", ".join(f'{sql} AS "{name}"' for name, sql in self.tags.items())
        source = f"read_csv({self.paths(data)!r}, all_varchar = true, header = true, nullstr = ['', 'NA', ' '])"
        values = ", ".join(f'{sql} AS "{name}"' for name, sql in fields.items())
        duck.execute(
            f"CREATE TEMP TABLE lines AS SELECT row_number() OVER () AS line, {self.time_sql} AS time"
            f"{', ' + tags if tags else ''}, {values} FROM {source}"
        )
        keys = ", ".join(f'"{name}"' for name in self.identity())
        merged = ", ".join(f'arg_max("{name}", line) AS "{name}"' for name in self.fields)
        duck.execute(f'CREATE TABLE "{self.name}" AS SELECT {keys}, {merged} FROM lines GROUP BY {keys}')
        duck.execute("DROP TABLE lines")


def tags(*names):
    return {name: f'"{name}"' for name in names}


BEIJING = Table(
    "beijing", "beijing_air/*.csv.gz", 420_768,
    ["--time-columns", "year,month,day,hour", "--tags", "station", "--skip", "No", "--null", "NA", "--null", " "],
    "make_timestamp(year::BIGINT, month::BIGINT, day::BIGINT, hour::BIGINT, 0, 0)",
    tags("station"),
    {"PM2.5": D, "PM10": D, "SO2": D, "NO2": D, "CO": I, "O3": D, "TEMP": D, "PRES": D, "DEWP": D, "RAIN": D, "wd": T, "WSPM": D},
    ("2015-06-01", "2015-06-15"),
)
LONDON = Table(
    "london", "london_air/*.csv.gz", 65_533,
    ["--time", "date", "--constant-tag", "site=Marylebone Road"],
    "date::TIMESTAMP", {"site": "'Marylebone Road'"},
    {"ws": D, "wd": I, "nox": I, "no2": I, "o3": I, "pm10": I, "so2": D, "co": D, "pm25": I},
    ("2003-02-01", "2003-06-01"), small="london_air.csv.gz", small_rows=17_520,
)
NYC = Table(
    "nyc", "weather/nyc_2013.csv.gz", 26_115,
    ["--time", "time_hour", "--tags", "origin"],
    "time_hour::TIMESTAMP", tags("origin"),
    {"year": I, "month": I, "day": I, "hour": I, "temp": D, "dewp": D, "humid": D, "wind_dir": D, "wind_speed": D,
     "wind_gust": D, "precip": D, "pressure": D, "visib": D},
    ("2013-03-01", "2013-05-01"), small="weather_nyc.csv.gz", small_rows=26_115,
)
NOAA = Table(
    "noaa", "weather/noaa_daily_1990_1993.csv.gz", 729_410,
    ["--time", "date", "--tags", "station,element"],
    "date::TIMESTAMP", tags("station", "element"), {"lat": D, "lon": D, "value": D},
    ("1992-02-25", "1992-03-05"),
)
MACHINE = Table(
    "machine", "machine/temperature.csv", 22_695,
    ["--time", "timestamp"],
    "timestamp::TIMESTAMP", {}, {"value": D}, ("2014-01-05", "2014-01-20"), kept=22_683,
    small="machine_temperature.csv.gz", small_rows=22_695, small_kept=22_683,
)
AIRCRAFT = Table(
    "aircraft", "aircraft/quickstart.csv.gz", 284_505,
    ["--time", "timestamp", "--tags", "icao24"],
    "timestamp::TIMESTAMP", tags("icao24"),
    {"altitude": D, "callsign": T, "groundspeed": D, "latitude": D, "longitude": D, "onground": B, "squawk": D,
     "track": D, "vertical_rate": D},
    ("2021-10-07 13:20:00", "2021-10-07 13:24:00"), small="aircraft.csv.gz", small_rows=18_698,
)
FAULTS = Table(
    "faults", "aircraft/clock_faults.csv.gz", 8_294,
    ["--time", "timestamp", "--tags", "icao24"],
    "timestamp::TIMESTAMP", tags("icao24"),
    {"latitude": D, "longitude": D, "altitude": I, "groundspeed": I, "track": D, "vertical_rate": I},
    ("2022-07-13 12:00:00", "2022-07-13 13:00:00"), small="aircraft_clock_faults.csv.gz", small_rows=8_294,
)
# The receiver's clock ticks in nanoseconds, and no two lines of a market share a tick: market and
# symbol are enough of an identity, and trade_id and update_id stay fields.
TRADES = Table(
    "trades", "crypto/trades.csv.gz", 78_638,
    ["--time", "local_ns", "--time-format", "ns", "--tags", "market,symbol"],
    "make_timestamp_ns(local_ns::BIGINT)", tags("market", "symbol"),
    {"event_ms": I, "trade_ms": I, "trade_id": I, "price": D, "qty": D, "buyer_maker": B},
    ("2024-08-08 23:56:00", "2024-08-08 23:57:00"), small="crypto_trades.csv.gz", small_rows=18_055,
)
BOOK = Table(
    "book", "crypto/book_ticker.csv.gz", 335_931,
    ["--time", "local_ns", "--time-format", "ns", "--tags", "market,symbol"],
    "make_timestamp_ns(local_ns::BIGINT)", tags("market", "symbol"),
    {"event_ms": D, "update_id": I, "bid": D, "bid_qty": D, "ask": D, "ask_qty": D},
    ("2024-08-08 23:56:00", "2024-08-08 23:56:05"),
)
CENTRAL_PARK = Table(
    "central_park", "ghcn/central_park_1869_2020.csv.gz", 391_566,
    ["--time", "date", "--tags", "station,element"],
    "date::TIMESTAMP", tags("station", "element"),
    {"lon": D, "lat": D, "elevation": D, "value": I, "flags": T},
    ("1969-07-01", "1970-07-01"),
)
HAWAII = Table(
    "hawaii", "ghcn/hawaii_2010_2017.csv.gz", 19_549,
    ["--time", "date", "--tags", "station"],
    "date::TIMESTAMP", tags("station"),
    {"longitude": D, "latitude": D, "elevation": D, "prcp": D, "tobs": I},
    ("2015-01-01", "2016-01-01"),
)

# Each set is one database.
SETS = {
    "beijing_air": [BEIJING],
    "london_air": [LONDON],
    "weather": [NYC, NOAA],
    "machine": [MACHINE],
    "aircraft": [AIRCRAFT, FAULTS],
    "crypto": [TRADES, BOOK],
    "ghcn": [CENTRAL_PARK, HAWAII],
}
TABLES = {table.name: table for tables in SETS.values() for table in tables}

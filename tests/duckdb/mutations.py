"""Late, corrected, duplicate and deleted readings, applied to both databases.

A write of an identity that exists merges field by field: what it leaves out, or gives as null,
stays. Stage "late" runs on short columns, stage "later" on long ones, so that afterwards the
answers come from a mixture of models.
"""

import csv
import dataclasses
import os


@dataclasses.dataclass
class Write:
    """Rows, each with the identity and some fields; `way` is "sql" or "csv"."""

    table: str
    columns: list
    rows: list
    way: str = "sql"


@dataclasses.dataclass
class Delete:
    """A range delete, in SQL that both understand."""

    table: str
    where: str


LATE = [
    # A value that was missing arrives, a wrong one is corrected; TEMP and the rest must stay.
    Write("beijing", ["time", "station", "PM2.5", "wd"], [
        ["2014-02-15 08:00:00", "Dongsi", 123.25, "SE"],
        ["2013-03-01 00:00:00", "Tiantan", None, "ZZZ"],
        ["2017-02-28 23:00:00", "Changping", 0.5, None],
    ]),
    # New hours of a known station, a new station, a time long before all others.
    Write("beijing", ["time", "station", "TEMP"], [
        ["2017-03-01 00:00:00", "Dongsi", 7.125], ["2014-06-15 12:30:00", "Huairou", 99.5],
        ["2014-06-15 12:30:00", "Dahuofang", -3.0], ["1955-05-05 05:05:05", "Dongsi", 21.5],
    ]),
    Delete("beijing", "station = 'Wanliu' AND time >= TIMESTAMP '2016-03-10 05:00:00' AND time < TIMESTAMP '2016-03-12'"),
    Delete("beijing", "station IN ('Gucheng', 'Shunyi') AND time >= TIMESTAMP '2013-03-03' AND time <= TIMESTAMP '2013-03-04 12:00:00'"),
    # What is written after a delete is there.
    Write("beijing", ["time", "station", "NO2"], [["2016-03-11 00:00:00", "Wanliu", 41.5]]),
    Write("london", ["time", "site", "nox", "so2"], [
        ["2003-07-01 00:00:00", "Marylebone Road", 9999, None], ["2003-07-01 00:30:00", "Marylebone Road", 1, 2.5],
        ["1998-02-01 05:00:00", "Marylebone Road", None, 0.125],
    ]),
    Delete("london", "time >= TIMESTAMP '2003-02-10' AND time < TIMESTAMP '2003-02-11 03:00:00'"),
    Write("nyc", ["time", "origin", "temp", "wind_gust"], [
        ["2013-07-04 00:00:00", "JFK", 101.5, 50.25], ["2013-07-04 00:20:00", "JFK", 101.75, None],
        ["2013-02-08 12:00:00", "LGA", None, 77.0], ["2014-05-01 00:00:00", "EWR", 60.0, None],
    ], way="csv"),
    Delete("nyc", "origin LIKE 'E%' AND time >= TIMESTAMP '2013-12-24' AND time < TIMESTAMP '2013-12-26'"),
    Write("noaa", ["time", "station", "element", "value"], [
        ["1991-01-15 00:00:00", "3804", "Tmax", 150.0], ["1992-02-29 00:00:00", "nowhere", "Tmax", 1.0],
    ]),
    Delete("noaa", "element = 'TDP' AND station = '3804' AND time < TIMESTAMP '1990-06-01'"),
    # The same line many times over, in one batch and in several: the last wins.
    Write("machine", ["time", "value"], [["2014-01-07 02:00:00", 1.5], ["2014-01-07 02:00:00", 2.5], ["2014-01-07 02:01:00", 3.5]]),
    Write("machine", ["time", "value"], [["2014-01-07 02:00:00", 4.5], ["2013-12-31 23:59:59", 5.5]], way="csv"),
    Delete("machine", "time >= TIMESTAMP '2014-01-10 03:07:00' AND time <= TIMESTAMP '2014-01-12 04:55:00'"),
    Write("aircraft", ["time", "icao24", "callsign", "onground", "altitude"], [
        ["2021-10-07 14:05:00", "3946e0", "LATE1", True, None], ["2021-10-07 13:21:00", "460861", None, None, 123.0],
        ["2021-10-07 13:21:00.500", "460861", "HALF", False, 7.0],
    ]),
    Delete("aircraft", "icao24 = '345359' AND time >= TIMESTAMP '2021-10-07 13:00:00' AND time < TIMESTAMP '2021-10-07 13:21:30'"),
    Delete("faults", "time >= TIMESTAMP '2022-07-13 12:10:00' AND time < TIMESTAMP '2022-07-13 12:20:00'"),
    Write("trades", ["time", "market", "symbol", "price", "qty"], [
        ["2024-08-08 23:56:01.000000001", "spot_btcusdt", "BTCUSDT", 60000.0, 77.5],
        ["2024-08-08 23:56:01.000000002", "spot_btcusdt", "BTCUSDT", 60001.0, 88.5],
    ]),
    Delete("trades", "market = 'usdm_btcusdt' AND time >= TIMESTAMP '2024-08-08 23:56:05' AND time < TIMESTAMP '2024-08-08 23:56:09.5'"),
    Delete("book", "symbol = 'ETHUSDT' AND time >= TIMESTAMP '2024-08-08 23:56:03'  AND time < TIMESTAMP '2024-08-08 23:58:00'"),
    Write("central_park", ["time", "station", "element", "value", "flags"], [
        ["1869-01-05 00:00:00", "USW00094728", "TMAX", -400, "late"], ["1868-12-31 00:00:00", "USW00094728", "TMAX", -1, None],
        ["1969-12-31 23:59:59", "USW00094728", "TMAX", 55, None],
    ]),
    Delete("central_park", "element = 'SNOW' AND time >= TIMESTAMP '1888-03-01' AND time < TIMESTAMP '1888-03-20'"),
    Write("hawaii", ["time", "station", "prcp"], [["2015-08-08 00:00:00", "USC00516128", 12.5], ["2011-01-01 00:00:00", "USC00517948", 0.0]]),
]

LATER = [
    # Corrections of corrections, and of readings that were deleted.
    Write("beijing", ["time", "station", "PM2.5"], [["2014-02-15 08:00:00", "Dongsi", 124.0], ["2013-03-03 10:00:00", "Gucheng", 5.0]]),
    Write("beijing", ["time", "station", "WSPM", "RAIN"], [["2014-06-15 12:30:00", "Huairou", None, 3.0]], way="csv"),
    Delete("beijing", "station = 'Dahuofang'  AND time >= TIMESTAMP '2014-01-01' AND time < TIMESTAMP '2015-01-01'"),
    Write("london", ["time", "site", "no2"], [["2003-02-10 12:00:00", "Marylebone Road", 150]]),
    Delete("london", "time < TIMESTAMP '1998-01-02'"),
    Write("nyc", ["time", "origin", "precip"], [["2013-12-25 00:00:00", "EWR", 3.25], ["2013-07-04 00:20:00", "JFK", 9.5]]),
    Delete("nyc", "time >= TIMESTAMP '2014-01-01'"),
    Delete("noaa", "station = 'nowhere' AND time >= TIMESTAMP '1992-01-01' AND time < TIMESTAMP '1993-01-01'"),
    Write("machine", ["time", "value"], [["2014-01-11 00:00:00", 200.25], ["2014-01-07 02:01:00", -3.5]]),
    Delete("machine", "time = TIMESTAMP '2014-01-07 02:00:00'"),
    Write("aircraft", ["time", "icao24", "callsign"], [["2021-10-07 13:10:00", "345359", "AGAIN"]], way="csv"),
    Delete("aircraft", "icao24 = '460861'"),
    Write("faults", ["time", "icao24", "altitude"], [["2022-07-13 12:15:00", "4b1815", 40000]]),
    Write("trades", ["time", "market", "symbol", "qty"], [["2024-08-08 23:56:01.000000002", "spot_btcusdt", "BTCUSDT", 99.5]]),
    Write("central_park", ["time", "station", "element", "value"], [["1888-03-12 00:00:00", "USW00094728", "SNOW", 999]]),
    Delete("hawaii", "station = 'USC00518838' AND time < TIMESTAMP '2012-01-01'"),
]


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else repr(value)


def names(columns):
    return ", ".join(f'"{column}"' for column in columns)


def apply_duckdb(duck, step, tables):
    """Applies a step to DuckDB, with the merge written out."""
    if isinstance(step, Delete):
        duck.execute(f"DELETE FROM {step.table} WHERE {step.where}")
        return
    identity = tables[step.table].identity()
    for row in step.rows:
        values = dict(zip(step.columns, row))
        same = " AND ".join(f'"{key}" = {literal(values[key])}' for key in identity)
        merged = ", ".join(f'"{c}" = coalesce({literal(v)}, "{c}")' for c, v in values.items() if c not in identity)
        if duck.execute(f"SELECT count(*) FROM {step.table} WHERE {same}").fetchall()[0][0]:
            duck.execute(f"UPDATE {step.table} SET {merged} WHERE {same}")
        else:
            duck.execute(f"INSERT INTO {step.table} ({names(step.columns)}) VALUES ({', '.join(map(literal, row))})")


def apply_tidefall(ours, step, tables, folder):
    """Applies a step to Tidefall: SQL, or a file for `tidefall import`."""
    if isinstance(step, Delete):
        ours.sql(f"DELETE FROM {step.table} WHERE {step.where}")
    elif step.way == "sql":
        rows = ", ".join(f"({', '.join(map(literal, row))})" for row in step.rows)
        ours.sql(f"INSERT INTO {step.table} ({names(step.columns)}) VALUES {rows}")
    else:
        path = os.path.join(folder, "late.csv")
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([step.columns, *step.rows])
        tags = list(tables[step.table].tags)
        ours.import_files(step.table, [path], ["--time", "time"] + (["--tags", ",".join(tags)] if tags else []))

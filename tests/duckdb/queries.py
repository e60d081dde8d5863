"""The questions, each as one text for both databases.

Where the two dialects differ a text holds a marker, which `tidefall()` and `duckdb()` expand:

    $bin[1 hour]     start of the time's bin, counted from 1970
    $first[x]        value of x at the first time of the group, null if it is null
    $last[x]         the same at the last time
    $match[x, 're']  whether text x matches a regular expression somewhere
"""

import dataclasses
import re

from datasets import TABLES


@dataclasses.dataclass
class Query:
    """A question. `ordered` when the order of its rows counts; `empty` when no row is the answer."""

    name: str
    text: str
    ordered: bool = False
    empty: bool = False

    def tables(self):
        words = set(re.findall(r"\w+", self.text))
        return [name for name in TABLES if name in words]


def expand(text, markers):
    for name, template in markers.items():
        pattern = rf"\${name}\[((?:[^\[\]]|\[[^\[\]]*\])*)\]"
        text = re.sub(pattern, lambda found: template(found.group(1)), text)
    return text


def tidefall(text):
    return expand(text, {
        "bin": lambda width: f"date_bin(interval '{width}', time)",
        "first": lambda x: f"first_value({x} ORDER BY time)",
        "last": lambda x: f"last_value({x} ORDER BY time)",
        "match": lambda args: "{} ~ {}".format(*args.split(", ", 1)),
    })


def duckdb(text):
    return expand(text, {
        "bin": lambda width: f"time_bucket(interval '{width}', time::TIMESTAMP, TIMESTAMP '1970-01-01')",
        "first": lambda x: f"first({x} ORDER BY time)",
        "last": lambda x: f"last({x} ORDER BY time)",
        "match": lambda args: f"regexp_matches({args})",
    })


def of_every_table():
    """What is asked of every table: totals of every column, monthly totals, and rows themselves."""
    for table in TABLES.values():
        parts = ["count(*) AS n", "min(time) AS first", "max(time) AS last"]
        for name, type_ in table.fields.items():
            column, safe = f'"{name}"', re.sub(r"\W", "_", name)
            parts.append(f"count({column}) AS n_{safe}")
            if type_ == "VARCHAR":
                parts.append(f"min({column}) AS min_{safe}, max({column}) AS max_{safe}, count(DISTINCT {column}) AS d_{safe}")
            elif type_ == "BOOLEAN":
                parts.append(f"sum(CASE WHEN {column} THEN 1 ELSE 0 END) AS true_{safe}")
            else:
                parts.append(f"min({column}) AS min_{safe}, max({column}) AS max_{safe}, sum({column}) AS sum_{safe}")
        yield Query(f"{table.name}: totals", f"SELECT {', '.join(parts)} FROM {table.name}")
        tags = "".join(f", {tag}" for tag in table.tags)
        number = next(f'"{name}"' for name, type_ in table.fields.items() if type_ in ("DOUBLE", "BIGINT"))
        yield Query(
            f"{table.name}: monthly",
            f"SELECT date_trunc('month', time) AS month{tags}, count(*) AS n, count({number}) AS c, avg({number}) AS a,"
            f" min({number}) AS lo, max({number}) AS hi FROM {table.name} GROUP BY date_trunc('month', time){tags}",
        )
        columns = ", ".join(f'"{name}"' for name in table.columns())
        first, last = table.slice
        yield Query(
            f"{table.name}: rows in order",
            f"SELECT {columns} FROM {table.name} WHERE time >= TIMESTAMP '{first}' AND time < TIMESTAMP '{last}'"
            f" ORDER BY {''.join(tag + ', ' for tag in table.tags)}time",
            ordered=True,
        )


QUERIES = list(of_every_table()) + [
    # Beijing: twelve stations, hourly, text among the fields, much missing.
    Query("point", """SELECT time, station, "PM2.5", "TEMP", wd FROM beijing WHERE station = 'Dongsi' AND time = TIMESTAMP '2014-02-15 08:00:00'"""),
    Query("a day of one station, in order", """SELECT time, "PM2.5", "O3" FROM beijing WHERE station = 'Tiantan' AND time BETWEEN TIMESTAMP '2016-12-20' AND TIMESTAMP '2016-12-21' ORDER BY time""", ordered=True),
    Query("all stations at one hour", """SELECT station, "PM2.5", "PM10" FROM beijing WHERE time = TIMESTAMP '2013-03-01 00:00:00'"""),
    Query("count, spread and mean by station", """SELECT station, count("PM2.5") AS n, min("PM2.5") AS lo, max("PM2.5") AS hi, avg("PM2.5") AS mean, stddev("PM2.5") AS sd, sum("PM2.5") AS total FROM beijing GROUP BY station"""),
    Query("hourly mean over a year", """SELECT $bin[1 hour] AS hour, avg("TEMP") AS t FROM beijing WHERE station = 'Huairou' AND time >= TIMESTAMP '2014-01-01' AND time < TIMESTAMP '2015-01-01' GROUP BY $bin[1 hour]"""),
    Query("daily by two stations, IN", """SELECT $bin[1 day] AS day, station, avg("NO2") AS no2, count("NO2") AS n FROM beijing WHERE station IN ('Gucheng', 'Wanliu') AND time >= TIMESTAMP '2016-01-01' GROUP BY $bin[1 day], station"""),
    Query("weekly, ragged edges", """SELECT $bin[7 days] AS week, max("WSPM") AS gust FROM beijing WHERE time >= TIMESTAMP '2013-03-05 07:00:00' AND time <= TIMESTAMP '2013-12-24 17:00:00' GROUP BY $bin[7 days]"""),
    Query("tags by pattern", """SELECT station, count(*) AS n FROM beijing WHERE station LIKE 'W%' GROUP BY station"""),
    Query("tags not by pattern", """SELECT station, sum("RAIN") AS rain FROM beijing WHERE station NOT LIKE '%n%' GROUP BY station"""),
    Query("tags by regular expression", """SELECT station, max("CO") AS co FROM beijing WHERE $match[station, '^(D|G).*g'] GROUP BY station"""),
    Query("tags unequal", """SELECT count(*) AS n FROM beijing WHERE station <> 'Dongsi' AND time < TIMESTAMP '2013-04-01'"""),
    Query("a tag that nobody has", """SELECT time FROM beijing WHERE station = 'Atlantis'""", empty=True),
    Query("total of nothing", """SELECT count(*) AS n, sum("TEMP") AS s, min("TEMP") AS lo, avg("TEMP") AS a FROM beijing WHERE time > TIMESTAMP '2030-01-01'"""),
    Query("value condition", """SELECT time, station, "PM2.5" FROM beijing WHERE "PM2.5" > 850"""),
    Query("two value conditions", """SELECT station, count(*) AS n FROM beijing WHERE "TEMP" < -15 AND "WSPM" >= 2.5 GROUP BY station"""),
    Query("value equality", """SELECT count(*) AS n FROM beijing WHERE "O3" = 77 AND time >= TIMESTAMP '2013-03-01'"""),
    Query("missing values", """SELECT station, count(*) AS n FROM beijing WHERE "PM2.5" IS NULL GROUP BY station"""),
    Query("one measure missing where another is there", """SELECT count(*) AS n FROM beijing WHERE "CO" IS NULL AND "SO2" IS NOT NULL"""),
    Query("text field", """SELECT wd, count(*) AS n, avg("WSPM") AS speed FROM beijing GROUP BY wd"""),
    Query("text field condition", """SELECT count(*) AS n, max("TEMP") AS hot FROM beijing WHERE wd = 'NNW' AND station = 'Shunyi'"""),
    Query("highest first", """SELECT time, station, "PM10" FROM beijing WHERE "PM10" IS NOT NULL ORDER BY "PM10" DESC, station, time LIMIT 20""", ordered=True),
    Query("latest rows", """SELECT time, "TEMP" FROM beijing WHERE station = 'Changping' ORDER BY time DESC LIMIT 5""", ordered=True),
    Query("limit and offset", """SELECT time, "DEWP" FROM beijing WHERE station = 'Dingling' ORDER BY time LIMIT 7 OFFSET 1000""", ordered=True),
    Query("limit without order", """SELECT count(*) AS n FROM (SELECT time FROM beijing LIMIT 1234) AS cut"""),
    Query("distinct tags", """SELECT DISTINCT station FROM beijing"""),
    Query("distinct values", """SELECT DISTINCT wd FROM beijing WHERE station = 'Dongsi'"""),
    Query("distinct count by day", """SELECT $bin[1 day] AS day, count(DISTINCT wd) AS winds FROM beijing WHERE time >= TIMESTAMP '2017-02-01' GROUP BY $bin[1 day]"""),
    Query("first and last, nulls included", """SELECT station, $first["PM2.5"] AS a, $last["PM2.5"] AS b, $first[wd] AS w FROM beijing GROUP BY station"""),
    Query("daily first and last", """SELECT $bin[1 day] AS day, $first["NO2"] AS a, $last["NO2"] AS b FROM beijing WHERE station = 'Dongsi' AND time >= TIMESTAMP '2013-03-01' AND time < TIMESTAMP '2013-06-01' GROUP BY $bin[1 day]"""),
    Query("having", """SELECT station, avg("SO2") AS so2 FROM beijing GROUP BY station HAVING avg("SO2") > 16"""),
    Query("join of two stations", """SELECT count(*) AS n, avg(a."TEMP" - b."TEMP") AS d FROM beijing AS a JOIN beijing AS b ON a.time = b.time WHERE a.station = 'Dongsi' AND b.station = 'Huairou'"""),
    Query("by hour of the day", """SELECT extract(hour FROM time) AS h, avg("O3") AS o3 FROM beijing WHERE station = 'Wanliu' GROUP BY extract(hour FROM time)"""),
    Query("window over a sensor", """SELECT time, "PRES" - lag("PRES") OVER (PARTITION BY station ORDER BY time) AS step FROM beijing WHERE station = 'Gucheng' AND time < TIMESTAMP '2013-03-08'"""),
    # London: one site, eight years, whole and decimal numbers.
    Query("yearly", """SELECT extract(year FROM time) AS year, count(no2) AS n, avg(no2) AS no2, stddev(no2) AS sd, sum(so2) AS so2 FROM london GROUP BY extract(year FROM time)"""),
    Query("daily mean of whole numbers", """SELECT $bin[1 day] AS day, avg(pm10) AS pm10, min(pm10) AS lo, max(pm10) AS hi, sum(pm10) AS total FROM london WHERE time >= TIMESTAMP '2003-01-01' AND time < TIMESTAMP '2004-01-01' GROUP BY $bin[1 day]"""),
    Query("several stretches", """SELECT count(*) AS n, sum(nox) AS nox FROM london WHERE (time >= TIMESTAMP '1998-02-01' AND time < TIMESTAMP '1998-02-02') OR (time >= TIMESTAMP '2003-07-01' AND time < TIMESTAMP '2003-07-03')"""),
    Query("night hours", """SELECT avg(nox) AS nox FROM london WHERE extract(hour FROM time) < 5 AND wd BETWEEN 180 AND 270"""),
    Query("share above a limit", """SELECT sum(CASE WHEN no2 > 100 THEN 1 ELSE 0 END) AS above, count(no2) AS n FROM london"""),
    Query("median and variance", """SELECT median(CAST(o3 AS DOUBLE)) AS mid, var_pop(o3) AS v, stddev_pop(o3) AS s FROM london WHERE time >= TIMESTAMP '2003-06-01' AND time < TIMESTAMP '2003-09-01'"""),
    Query("common table expression", """WITH daily AS (SELECT $bin[1 day] AS day, avg(o3) AS o3 FROM london GROUP BY $bin[1 day]) SELECT count(*) AS n, max(o3) AS hi FROM daily WHERE o3 > 20"""),
    # New York and the States.
    Query("three hours by airport", """SELECT $bin[3 hours] AS b, origin, avg(temp) AS t, max(wind_gust) AS gust, count(wind_gust) AS n FROM nyc WHERE time >= TIMESTAMP '2013-07-01' AND time < TIMESTAMP '2013-08-01' GROUP BY $bin[3 hours], origin"""),
    Query("airports side by side", """SELECT a.time, a.temp AS jfk, b.temp AS lga FROM nyc AS a JOIN nyc AS b ON a.time = b.time WHERE a.origin = 'JFK' AND b.origin = 'LGA' AND a.time >= TIMESTAMP '2013-02-08' AND a.time < TIMESTAMP '2013-02-10'"""),
    Query("outer join with gaps", """SELECT count(*) AS n, count(b.time) AS matched FROM nyc AS a LEFT JOIN nyc AS b ON a.time = b.time AND b.origin = 'EWR' WHERE a.origin = 'JFK'"""),
    Query("worst per airport", """SELECT origin, min(visib) AS v, max(precip) AS p, min(pressure) AS low FROM nyc GROUP BY origin ORDER BY origin""", ordered=True),
    Query("local and universal time", """SELECT count(*) AS n FROM nyc WHERE hour = 23 AND extract(hour FROM time) = 4"""),
    Query("union", """SELECT time, temp FROM nyc WHERE origin = 'EWR' AND time < TIMESTAMP '2013-01-02' UNION ALL SELECT time, dewp FROM nyc WHERE origin = 'LGA' AND time < TIMESTAMP '2013-01-02'"""),
    Query("two tags", """SELECT element, count(*) AS n, avg(value) AS a FROM noaa WHERE station = '3804' GROUP BY element"""),
    Query("hottest stations", """SELECT station, max(value) AS hot FROM noaa WHERE element = 'Tmax' GROUP BY station ORDER BY max(value) DESC, station LIMIT 10""", ordered=True),
    Query("pairs of elements", """SELECT count(*) AS n, avg(hi.value - lo.value) AS swing FROM noaa AS hi JOIN noaa AS lo ON hi.time = lo.time AND hi.station = lo.station WHERE hi.element = 'Tmax' AND lo.element = 'Tmin' AND hi.time >= TIMESTAMP '1991-01-01' AND hi.time < TIMESTAMP '1991-02-01'"""),
    Query("either tag", """SELECT count(*) AS n FROM noaa WHERE station = '3804' OR element = 'TDP'"""),
    Query("leap day", """SELECT element, count(*) AS n, sum(value) AS s FROM noaa WHERE time = TIMESTAMP '1992-02-29' GROUP BY element"""),
    # One machine: no tag at all, repeated lines.
    Query("the hour that came twice", """SELECT time, value FROM machine WHERE time >= TIMESTAMP '2014-01-07 01:50:00' AND time < TIMESTAMP '2014-01-07 03:10:00' ORDER BY time""", ordered=True),
    Query("hourly without tags", """SELECT $bin[1 hour] AS hour, count(*) AS n, min(value) AS lo, max(value) AS hi, avg(value) AS mean, stddev(value) AS sd, $first[value] AS a, $last[value] AS b FROM machine GROUP BY $bin[1 hour]"""),
    Query("failures", """SELECT $bin[1 day] AS day, min(value) AS lo FROM machine WHERE value < 40 GROUP BY $bin[1 day]"""),
    Query("bins that no block fits", """SELECT $bin[13 minutes] AS b, sum(value) AS s FROM machine WHERE time >= TIMESTAMP '2013-12-31 22:03:00' AND time < TIMESTAMP '2014-01-02 01:01:00' GROUP BY $bin[13 minutes]"""),
    # Aircraft: text, booleans, seconds.
    Query("track of one flight", """SELECT time, latitude, longitude, altitude FROM aircraft WHERE icao24 = '3946e0' AND time >= TIMESTAMP '2021-10-07 14:04:00' AND time < TIMESTAMP '2021-10-07 14:10:00' ORDER BY time""", ordered=True),
    Query("on the ground", """SELECT icao24, count(*) AS n, max(groundspeed) AS taxi FROM aircraft WHERE onground GROUP BY icao24"""),
    Query("call signs by aircraft", """SELECT icao24, callsign, min(time) AS since, max(time) AS until, count(*) AS n FROM aircraft GROUP BY icao24, callsign"""),
    Query("minutely climb", """SELECT $bin[1 minute] AS m, icao24, avg(vertical_rate) AS climb, $last[altitude] AS altitude FROM aircraft WHERE icao24 IN ('460861', '345359') GROUP BY $bin[1 minute], icao24"""),
    Query("inside a box", """SELECT count(*) AS n, count(DISTINCT icao24) AS planes FROM aircraft WHERE latitude BETWEEN 48.5 AND 49.2 AND longitude BETWEEN 2.0 AND 3.0 AND altitude < 5000"""),
    Query("text pattern on a field", """SELECT callsign, count(*) AS n FROM aircraft WHERE callsign LIKE 'A%' GROUP BY callsign"""),
    Query("null text and null numbers", """SELECT count(*) AS n, count(squawk) AS squawks FROM aircraft WHERE altitude IS NULL"""),
    Query("last position of each", """SELECT icao24, max(time) AS t, $last[latitude] AS lat, $last[longitude] AS lon, $last[callsign] AS sign FROM aircraft GROUP BY icao24"""),
    Query("jumps of a faulty clock", """SELECT count(*) AS n FROM (SELECT latitude - lag(latitude) OVER (ORDER BY time) AS step FROM faults) AS s WHERE abs(step) > 0.01"""),
    Query("two tables", """SELECT 'a' AS t, count(*) AS n FROM aircraft UNION ALL SELECT 'f', count(*) FROM faults"""),
    # Trades: nanoseconds.
    Query("per second and market", """SELECT $bin[1 second] AS s, market, count(*) AS n, sum(qty) AS volume, $first[price] AS open, max(price) AS high, min(price) AS low, $last[price] AS close FROM trades WHERE time >= TIMESTAMP '2024-08-08 23:56:00' AND time < TIMESTAMP '2024-08-08 23:57:00' GROUP BY $bin[1 second], market"""),
    Query("one nanosecond", """SELECT time, market, price, trade_id FROM trades WHERE market = 'cm_btcusd_perp' ORDER BY time LIMIT 3""", ordered=True),
    Query("who made the trade", """SELECT market, buyer_maker, count(*) AS n, sum(price * qty) AS turnover FROM trades GROUP BY market, buyer_maker"""),
    Query("milliseconds shared by many", """SELECT market, trade_ms, count(*) AS n FROM trades GROUP BY market, trade_ms HAVING count(*) > 50"""),
    Query("symbol and market", """SELECT symbol, count(DISTINCT market) AS markets, avg(price) AS p FROM trades GROUP BY symbol"""),
    Query("largest trades", """SELECT time, market, qty FROM trades WHERE qty >= 10 ORDER BY qty DESC, time, market LIMIT 25""", ordered=True),
    Query("spread by second", """SELECT $bin[1 second] AS s, avg(ask - bid) AS spread, count(*) AS n FROM book WHERE market = 'spot_btcusdt' GROUP BY $bin[1 second]"""),
    Query("quotes and trades", """WITH t AS (SELECT $bin[1 second] AS s, market, avg(price) AS price FROM trades GROUP BY $bin[1 second], market), b AS (SELECT $bin[1 second] AS s, market, avg(bid) AS bid FROM book GROUP BY $bin[1 second], market) SELECT t.market, count(*) AS n, avg(t.price - b.bid) AS d FROM t JOIN b ON t.s = b.s AND t.market = b.market GROUP BY t.market"""),
    # Before 1970.
    Query("the first winter", """SELECT time, element, value, flags FROM central_park WHERE time < TIMESTAMP '1869-02-01' ORDER BY time, element""", ordered=True),
    Query("decades", """SELECT element, date_trunc('year', time) AS y, max(value) AS hi, min(value) AS lo, count(*) AS n FROM central_park WHERE element IN ('TMAX', 'TMIN') GROUP BY element, date_trunc('year', time)"""),
    Query("across 1970", """SELECT $bin[7 days] AS week, avg(value) AS a, count(*) AS n FROM central_park WHERE element = 'TMAX' AND time >= TIMESTAMP '1969-11-20' AND time < TIMESTAMP '1970-02-20' GROUP BY $bin[7 days]"""),
    Query("flags", """SELECT flags, count(*) AS n FROM central_park WHERE time < TIMESTAMP '1900-01-01' GROUP BY flags"""),
    Query("snow before 1970", """SELECT time, value FROM central_park WHERE element = 'SNOW' AND value > 380 AND time < TIMESTAMP '1970-01-01' ORDER BY time""", ordered=True),
    Query("rain and no rain", """SELECT station, count(*) AS n, count(prcp) AS known, sum(prcp) AS rain, avg(tobs) AS t FROM hawaii GROUP BY station"""),
    Query("wet days", """SELECT station, time, prcp FROM hawaii WHERE prcp > 6 ORDER BY prcp DESC, station, time""", ordered=True),
    Query("months of one station", """SELECT date_trunc('month', time) AS m, sum(prcp) AS rain FROM hawaii WHERE station = 'USC00516128' GROUP BY date_trunc('month', time) ORDER BY m""", ordered=True),
]

"""A year of hourly weather at New York's airports: import, look around, resample, find outliers, draw.

    python examples/weather.py [folder for the database] [picture.png]

Needs the package `tidefall` with pandas and matplotlib.
"""

import pathlib
import sys
import tempfile

import pandas
import tidefall

DATA = pathlib.Path(__file__).parent / "data" / "weather_nyc.csv.gz"
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
picture = sys.argv[2] if len(sys.argv) > 2 else str(pathlib.Path(folder) / "weather.png")

# Import: every row has its airport as a tag; all other numbers are fields.
raw = pandas.read_csv(DATA, na_values="NA", parse_dates=["time_hour"])
raw = raw.drop(columns=["year", "month", "day", "hour"])
db = tidefall.open(folder)
print("rows written:", db.write("weather", raw, time="time_hour", tags=["origin"]))
db.cascade(to="long")

# Explore.
weather = db.table("weather")
print(weather)
print(weather.latest(field="temp").to_dict())
print(weather.rows("JFK", "2013-07-04", "2013-07-05", field="temp").to_pandas().describe())

# Resample: from metrics and readings, side by side.
daily = weather.resample("1d", "mean", field="temp").to_pandas()
hottest = daily.mean(axis=1).idxmax()
print("hottest day:", hottest.date(), daily.loc[hottest].round(1).to_dict())

# Outliers: hours whose wind is five deviations above the mean of their airport.
outliers = db.sql("""
    SELECT w.origin, w.time, w.wind_speed FROM weather w
    JOIN (SELECT origin, avg(wind_speed) AS mean, stddev(wind_speed) AS deviation
          FROM weather GROUP BY origin) o ON w.origin = o.origin
    WHERE w.wind_speed > o.mean + 5 * o.deviation ORDER BY w.time""").to_pandas()
print(outliers)

# Draw.
axes = weather.resample("7d", "mean", field="temp").plot(figsize=(9, 4), title="Weekly mean temperature, °F")
axes.figure.savefig(picture, dpi=80)
print("picture:", picture)
db.close()

"""Ten thousand taxi trips as records: write, ask by boxes, find neighbours, draw a map.

    python examples/taxi.py [folder for the database] [picture.png]

Needs the package `tidefall` with pandas and matplotlib.
"""

import pathlib
import sys
import tempfile

import pandas
import tidefall
from matplotlib import pyplot
from matplotlib.patches import Rectangle

DATA = pathlib.Path(__file__).parent / "data" / "taxi.csv.gz"
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
picture = sys.argv[2] if len(sys.argv) > 2 else str(pathlib.Path(folder) / "taxi.png")

# Write: no row has an identity, and the table is made by the columns that it is asked by.
raw = pandas.read_csv(DATA, parse_dates=["tpep_pickup_datetime", "tpep_dropoff_datetime"])
frame = pandas.DataFrame({
    "latitude": raw["pickup_latitude"], "longitude": raw["pickup_longitude"], "at": raw["tpep_pickup_datetime"],
    "passengers": raw["passenger_count"].astype("int8"), "miles": raw["trip_distance"], "fare": raw["fare_amount"], "tip": raw["tip_amount"],
})
db = tidefall.open(folder)
trips = db.records("trips")
print("records written:", trips.write(frame, index=["latitude", "longitude", "at", "passengers"]))

# Boxes: counts and means of whole leaves come from what is known of them.
midtown = {"latitude": (40.745, 40.765), "longitude": (-73.995, -73.970)}
print("in Midtown:", trips.count(**midtown), "of which in the second week:", trips.count(**midtown, at=("2016-01-08", "2016-01-14 23:59:59")))
print(trips.range(["at", "fare", "tip"], limit=3, **midtown, passengers=[5, 6]).to_pandas())
print(db.sql("""
    SELECT passengers, count(*) AS trips, round(avg(fare), 2) AS fare FROM trips
    WHERE latitude BETWEEN 40.745 AND 40.765 AND longitude BETWEEN -73.995 AND -73.970 GROUP BY passengers ORDER BY passengers""").to_pandas())

# Neighbours: the twenty that began nearest to Times Square; a degree of longitude is shorter there than one of latitude.
square = {"latitude": (40.758, 0.009), "longitude": (-73.9855, 0.0119)}
near = trips.nearest(20, square, ["latitude", "longitude", "fare", "at"]).to_pandas()
print(f"nearest to Times Square: mean fare {near['fare'].mean():.2f}, the last {near['distance'].max():.3f} km away")

# Draw: mean fares of squares of some 200 metres, the boxes of leaves, and the neighbours.
squares = db.sql("""
    SELECT floor(latitude / 0.002) * 0.002 AS latitude, floor(longitude / 0.0025) * 0.0025 AS longitude, avg(fare) AS fare, count(*) AS trips
    FROM trips WHERE latitude BETWEEN 40.69 AND 40.83 AND longitude BETWEEN -74.03 AND -73.86 GROUP BY 1, 2 ORDER BY fare""").to_pandas()
leaves = db.sql("SELECT * FROM rtree('trips') WHERE kind = 'leaf' AND latitude_first > 40").to_pandas()
figure, axes = pyplot.subplots(figsize=(9, 9))
shown = axes.scatter(squares["longitude"], squares["latitude"], c=squares["fare"].clip(5, 30), s=6 + 3 * squares["trips"], cmap="viridis", marker="s")
for _, leaf in leaves.iterrows():
    corner = leaf["longitude_first"], leaf["latitude_first"]
    axes.add_patch(Rectangle(corner, leaf["longitude_last"] - corner[0], leaf["latitude_last"] - corner[1], fill=False, lw=0.6, ec="grey"))
axes.scatter(near["longitude"], near["latitude"], s=25, c="red", marker="x", label="nearest to Times Square")
axes.set(xlim=(-74.03, -73.86), ylim=(40.69, 40.83), xlabel="longitude", ylabel="latitude", title="Where taxi trips begin, and their mean fare")
axes.set_aspect(1.32)
axes.legend()
figure.colorbar(shown, label="dollars", shrink=0.7)
figure.savefig(picture, dpi=80)
print("picture:", picture)
db.close()

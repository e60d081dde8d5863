"""Cuts the real data that Tidefall carries out of the full files, line by line and unchanged.

    python make.py FULL_DATA_DIR

Run it again only when a cut shall change; SOURCES.md says what each file is and whose.
"""

import gzip
import io
import pathlib
import sys

HERE = pathlib.Path(__file__).parent

# Aircraft that together hold landings, taxiing on the ground, missing positions and a call sign
# that changes, in few rows.
AIRCRAFT = {"0101de", "0a0047", "345359", "3946e0", "3986e4", "3e3ab8", "400804", "460861"}


def lines(path):
    """The lines of a file, compressed or not, with their ends."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return io.BytesIO(text).readlines()


def save(name, kept):
    """Writes lines as a .gz without a time in its head, so that the same lines give the same bytes."""
    packed = gzip.compress(b"".join(kept), 9, mtime=0)
    (HERE / name).write_bytes(packed)
    print(f"{name}: {len(kept) - 1} rows, {len(packed)} bytes")


def cut(source, name, keep):
    head, *rows = lines(source)
    save(name, [head] + [row for row in rows if keep(row.decode().rstrip("\r\n").split(","))])


def main():
    full = pathlib.Path(sys.argv[1])
    cut(full / "london_air/marylebone_1998_2005.csv.gz", "london_air.csv.gz", lambda row: row[0][:4] in ("1998", "2003"))
    cut(full / "weather/nyc_2013.csv.gz", "weather_nyc.csv.gz", lambda row: True)
    cut(full / "machine/temperature.csv", "machine_temperature.csv.gz", lambda row: True)
    cut(full / "aircraft/quickstart.csv.gz", "aircraft.csv.gz", lambda row: row[3] in AIRCRAFT)
    cut(full / "aircraft/clock_faults.csv.gz", "aircraft_clock_faults.csv.gz", lambda row: True)
    cut(full / "taxi/2016_01_yellow.csv.gz", "taxi.csv.gz", lambda row: True)
    cut(full / "crypto/trades.csv.gz", "crypto_trades.csv.gz", lambda row: int(row[1]) % 60_000_000_000 < 15_000_000_000)


if __name__ == "__main__":
    main()

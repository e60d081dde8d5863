"""Random tables, the history of their readings, and what should be in them.

A history is a list of writes and deletes with cascades between them, so that readings lie in any mixture of
models. `Table.rows` is the naive model: one dictionary entry for each identity, later writes win field by field.
"""

import dataclasses
import datetime
import math
import random

import pyarrow

EPOCH = datetime.datetime(1970, 1, 1)

# Arrow's and SQL's type of each kind of field, and what its values are.
TYPES = {
    "DOUBLE": (pyarrow.float64(), "num"),
    "REAL": (pyarrow.float32(), "num"),
    "BIGINT": (pyarrow.int64(), "int"),
    "INTEGER": (pyarrow.int32(), "int"),
    "SMALLINT": (pyarrow.int16(), "int"),
    "TINYINT": (pyarrow.int8(), "int"),
    "BIGINT UNSIGNED": (pyarrow.uint64(), "int"),
    "INTEGER UNSIGNED": (pyarrow.uint32(), "int"),
    "SMALLINT UNSIGNED": (pyarrow.uint16(), "int"),
    "TINYINT UNSIGNED": (pyarrow.uint8(), "int"),
    "BOOLEAN": (pyarrow.bool_(), "bool"),
    "TEXT": (pyarrow.string(), "text"),
}
DUCKDB_TYPES = {
    "BIGINT UNSIGNED": "UBIGINT",
    "INTEGER UNSIGNED": "UINTEGER",
    "SMALLINT UNSIGNED": "USMALLINT",
    "TINYINT UNSIGNED": "UTINYINT",
}
# Integers of every width stay below these, so that sums of a whole table fit 64 bits in both databases.
INT_MAX = {"TINYINT": 127, "SMALLINT": 32767, "TINYINT UNSIGNED": 255, "SMALLINT UNSIGNED": 65535}
INT_MAX_WIDE = 1_000_000_000

TEXTS = ["", "a", "b", "ab", "B", "ä", "a b", "x%y", "z_", "10", "9", "north", "South", "NaN", "null"]
FIELD_NAMES = ["v", "w", "a", "b", "temp", "Load", "n", "state"]
TAG_NAMES = ["host", "site", "k"]
# Where the clock of a table starts: young data, old data, before 1970, across it.
STARTS = [datetime.datetime(2024, 3, 30, 20), datetime.datetime(2001, 12, 31, 22, 30), datetime.datetime(1965, 6, 1), datetime.datetime(1969, 12, 31, 12)]
STEPS_US = [1_000_000, 10_000_000, 60_000_000, 300_000_000, 3_600_000_000, 86_400_000_000]


@dataclasses.dataclass
class Table:
    """A table: its columns, how its readings are drawn, and what is in it."""

    name: str
    tags: list
    fields: dict
    start: datetime.datetime
    step_us: int
    wildness: float
    sensors: list
    rows: dict = dataclasses.field(default_factory=dict)

    def columns(self):
        """Names and kinds (text, num, int, bool, time) of all columns."""
        fields = {name: TYPES[type_][1] for name, type_ in self.fields.items()}
        return {"time": "time", **dict.fromkeys(self.tags, "text"), **fields}

    def create(self):
        """The statement that declares the table."""
        columns = ["time TIMESTAMP", *(f"{tag} TEXT" for tag in self.tags), *(f'"{name}" {type_}' for name, type_ in self.fields.items())]
        if self.tags:
            columns.append(f"PRIMARY KEY ({', '.join(self.tags)}, time)")
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    def create_duckdb(self):
        """The same for DuckDB, which gets the readings as they should be in the end."""
        types = {name: DUCKDB_TYPES.get(type_, type_) for name, type_ in self.fields.items()}
        columns = ["time TIMESTAMP", *(f"{tag} VARCHAR" for tag in self.tags), *(f'"{name}" {type_}' for name, type_ in types.items())]
        return f"CREATE OR REPLACE TABLE {self.name} ({', '.join(columns)})"

    def arrow(self, entries, fields):
        """Readings, as pairs of identity and fields, in Arrow's columns."""
        arrays = {"time": pyarrow.array([key[-1] for key, _ in entries], pyarrow.timestamp("us"))}
        for place, tag in enumerate(self.tags):
            arrays[tag] = pyarrow.array([key[place] for key, _ in entries], pyarrow.string())
        for name in fields:
            arrays[name] = pyarrow.array([values.get(name) for _, values in entries], TYPES[self.fields[name]][0])
        return pyarrow.table(arrays)

    def keep(self, entries):
        """Takes written readings into the model."""
        for key, values in entries:
            kept = self.rows.setdefault(key, {})
            kept.update((name, value) for name, value in values.items() if value is not None)

    def forget(self, chosen):
        """Takes deleted readings out of the model."""
        for key in [key for key in self.rows if chosen(key)]:
            del self.rows[key]


def draw_table(rng, name):
    """A table of random columns, without readings."""
    tags = TAG_NAMES[: rng.choice([0, 1, 1, 1, 2, 3])]
    names = rng.sample(FIELD_NAMES, rng.randint(1, 6))
    fields = {field: rng.choice(list(TYPES) + ["DOUBLE"] * 4 + ["BIGINT"] * 2) for field in names}
    count = 1 if not tags else rng.choice([1, 2, 5, 20, 60])
    values = [*TEXTS, None] if rng.random() < 0.3 else [text for text in TEXTS if text]
    names = [f"h{i}" for i in range(60)]
    sensors = {tuple(rng.choice(names if place == 0 and count > 5 else values) for place in range(len(tags))) for _ in range(count)}
    return Table(
        name, tags, fields, rng.choice(STARTS), rng.choice(STEPS_US), rng.choice([0, 0, 0.02, 0.2]), sorted(sensors, key=repr)
    )


def draw_value(rng, table, field):
    """A value of a field, now and then none."""
    type_ = table.fields[field]
    kind = TYPES[type_][1]
    if rng.random() < 0.08:
        return None
    if kind == "bool":
        return rng.random() < 0.4
    if kind == "text":
        return rng.choice(TEXTS)
    if kind == "int":
        top = INT_MAX.get(type_, INT_MAX_WIDE)
        low = 0 if "UNSIGNED" in type_ else -top - 1
        return rng.choice([rng.randint(max(low, -20), 20), rng.randint(low, top)]) if low < 0 else rng.choice([rng.randint(0, 20), rng.randint(0, top)])
    if rng.random() < table.wildness:
        return rng.choice([math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0])
    # Multiples of an eighth: sums are exact in any order.
    return rng.choice([rng.randint(-8, 8), rng.randint(-8000, 8000)]) / 8


def draw_entries(rng, table, count):
    """Readings, some of them of times that have been written before."""
    entries = []
    regular = rng.random() < 0.6
    begin = rng.randint(0, 400)
    for place in range(count):
        sensor = rng.choice(table.sensors)
        ticks = begin + place // len(table.sensors) if regular else rng.randint(0, 600)
        time_us = ticks * table.step_us + (rng.randint(0, table.step_us - 1) if not regular and rng.random() < 0.5 else 0)
        entries.append((*sensor, table.start + datetime.timedelta(microseconds=time_us)))
    fields = [name for name in table.fields if rng.random() < 0.85] or list(table.fields)[:1]
    return [(key, {name: draw_value(rng, table, name) for name in fields}) for key in entries], fields


def draw_delete(rng, table):
    """The condition of a delete, and which identities it means."""
    conditions, tests = [], []
    if table.tags and rng.random() < 0.7:
        place = rng.randrange(len(table.tags))
        chosen = {sensor[place] for sensor in rng.sample(table.sensors, min(len(table.sensors), rng.randint(1, 3)))} - {None}
        if chosen:
            conditions.append(f"{table.tags[place]} IN ({', '.join(repr(text) for text in sorted(chosen))})")
            tests.append(lambda key: key[place] in chosen)
    low = table.start + datetime.timedelta(microseconds=rng.randint(0, 500) * table.step_us)
    high = low + datetime.timedelta(microseconds=rng.randint(1, 150) * table.step_us)
    if rng.random() < 0.8 or not conditions:
        conditions.append(f"time >= '{low}' AND time < '{high}'")
        tests.append(lambda key: low <= key[-1] < high)
    return " AND ".join(conditions), lambda key: all(test(key) for test in tests)


class History:
    """Some tables and what happens to them, in both databases."""

    def __init__(self, seed, duck):
        self.rng = random.Random(seed)
        self.duck = duck
        self.tables = [draw_table(self.rng, f"t{i}") for i in range(self.rng.choice([1, 2, 2, 3]))]
        self.told = set()

    def create(self, db):
        """Declares some of the tables; the others come with their first write."""
        for table in self.tables:
            if self.rng.random() < 0.5:
                db.sql(table.create())
                self.told.add(table.name)

    def advance(self, db):
        """Some writes, deletes and cascades; afterwards DuckDB has what Tidefall should have."""
        for table in self.tables:
            for _ in range(self.rng.randint(1, 3)):
                self.change(db, table)
            self.rest(db, table)
            self.show_duckdb(table)

    def change(self, db, table):
        if table.name in self.told and self.rng.random() < 0.2:
            condition, chosen = draw_delete(self.rng, table)
            db.sql(f"DELETE FROM {table.name} WHERE {condition}")
            table.forget(chosen)
            return
        entries, fields = draw_entries(self.rng, table, self.rng.choice([1, 10, 200, 1500]))
        if table.name not in self.told:
            fields = list(table.fields)
            entries = [(key, {name: values.get(name) for name in fields}) for key, values in entries]
        db.write(table.name, table.arrow(entries, fields), time="time", tags=table.tags)
        table.keep(entries)
        self.told.add(table.name)

    def rest(self, db, table):
        """Moves what is there, or leaves it where it is."""
        step = self.rng.choice(["stay", "stay", "flush", "short", "long", "age"])
        if step == "flush":
            db.flush()
        elif step != "stay":
            db.cascade(table.name, to=step)

    def show_duckdb(self, table):
        self.duck.execute(table.create_duckdb())
        readings = table.arrow(list(table.rows.items()), list(table.fields))
        self.duck.register("readings", readings)
        self.duck.execute(f"INSERT INTO {table.name} SELECT * FROM readings")
        self.duck.unregister("readings")

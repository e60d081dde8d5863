"""Random questions in SQL that Tidefall and DuckDB both understand.

Where the two mean different things by the same words, the generator says it in words that both take alike; what is
left out for that is listed in docs/testing.md. An expression has one of five kinds: num (DOUBLE or REAL), int
(any integer), text, bool and time. A column of a sixth kind, inexact, is a number whose last digits depend on how it
was computed: it is shown, but nothing is asked of it.
"""

import dataclasses
import datetime

from tables import TEXTS, TYPES

DEPTH_MAX = 3
# DuckDB's macros of these names mean what Tidefall's functions do.
MACROS = [
    "CREATE OR REPLACE MACRO date_bin(width, t) AS time_bucket(width, t, TIMESTAMP '1970-01-01')",
    "CREATE OR REPLACE MACRO first_of(x, t) AS first(x ORDER BY t)",
    "CREATE OR REPLACE MACRO last_of(x, t) AS last(x ORDER BY t)",
    "CREATE OR REPLACE MACRO percentile_of(x, p) AS quantile_cont(x, p)",
    # DuckDB makes x >= -c of -x <= c, which differs where one of them is NaN.
    "CREATE OR REPLACE MACRO negative(x) AS CASE WHEN isnan(x) THEN x ELSE -x END",
]
TIDEFALL_WORDS = {"first_of(": "first(", "last_of(": "last(", "percentile_of(": "percentile(", "negative(": "-("}
WIDTHS = ["1 second", "7 seconds", "1 minute", "13 minutes", "1 hour", "3 hours", "1 day", "7 days"]
UNITS = ["second", "minute", "hour", "day", "week", "month", "year"]
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC"]


def for_tidefall(query):
    """The words of Tidefall for functions that DuckDB has as macros."""
    for theirs, ours in TIDEFALL_WORDS.items():
        query = query.replace(theirs, ours)
    return query


@dataclasses.dataclass
class Column:
    """A column in scope: how it is said, its kind, and its SQL type where it is one of a table."""

    text: str
    kind: str
    type_: str = ""


@dataclasses.dataclass
class Source:
    """Something behind FROM: its text, its columns, and those that are different in each row."""

    text: str
    columns: list
    identity: list
    table: object = None


@dataclasses.dataclass
class Query:
    """A question; `ordered` says that the rows' order is part of the answer."""

    text: str
    ordered: bool = False


def quote(text):
    return "'" + text.replace("'", "''") + "'"


def exact_kinds(columns):
    return [column.kind for column in columns if column.kind != "inexact"]


class Generator:
    """Draws questions about some tables."""

    def __init__(self, rng, tables):
        self.rng, self.tables = rng, tables
        self.aliases = 0

    def alias(self):
        self.aliases += 1
        return f"r{self.aliases}"

    def chance(self, share):
        return self.rng.random() < share

    # Sources

    def base(self, alias=None):
        """A table under a name of its own."""
        table = self.rng.choice(self.tables)
        alias = alias or self.alias()
        columns = [Column(f'{alias}."{name}"', kind, table.fields.get(name, "")) for name, kind in table.columns().items()]
        identity = [f'{alias}."{name}"' for name in [*table.tags, "time"]]
        return Source(f"{table.name} AS {alias}", columns, identity, table)

    def derived(self, depth):
        """A question as a source."""
        kinds, query, identity = self.rng.choice([self.plain_rows, self.grouped, self.parts])(depth - 1)
        alias = self.alias()
        if identity and self.chance(0.25):
            query = self.cut(query, kinds, identity)
        columns = [Column(f"{alias}.{name}", kind) for name, kind in kinds.items()]
        return Source(f"({query}) AS {alias}", columns, [f"{alias}.{name}" for name in identity])

    def cut(self, query, kinds, identity):
        """The first rows of a question in an order that leaves no choice."""
        return f"SELECT * FROM ({query}) AS {self.alias()} ORDER BY {self.order(kinds, identity)}{self.limit()}"

    def order(self, kinds, identity):
        """An order that leaves no choice, often one in which rows are stored."""
        exact = [name for name, kind in kinds.items() if name in identity or kind not in ("num", "inexact")]
        firsts = self.rng.sample(exact, min(len(exact), self.rng.choice([0, 1, 1, 2])))
        keys = list(dict.fromkeys([*firsts, *self.rng.choice([identity, list(reversed(identity)), self.rng.sample(identity, len(identity))])]))
        return ", ".join(f"{key} {self.rng.choice(['ASC', 'ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for key in keys)

    def limit(self):
        """How many of the rows, and after how many others."""
        limit = f" LIMIT {self.rng.choice([3, 30, 300, 3000])}"
        return self.rng.choice([limit, limit, f"{limit} OFFSET {self.rng.choice([2, 20, 200])}", f" OFFSET {self.rng.choice([2, 20, 200])}"])

    def parts(self, _depth):
        """Rows of tables behind each other, with a word that tells from which of them they are."""
        sources = [self.base() for _ in range(self.rng.randint(2, 3))]
        tags = [sorted(source.table.tags) for source in sources]
        shared = [tag for tag in tags[0] if all(tag in others for others in tags)]
        # Those whose rows are told apart by the tags that all have.
        sources = [source for source in sources if len(source.table.tags) == len(shared)]
        sides = []
        for place, source in enumerate(sources):
            word = f"'{chr(ord('z') - place)}'"
            x = self.column(source.columns, "num")
            x = f"CAST({x.text} AS DOUBLE)" if x else "0.5"
            alias = source.text.split()[-1]
            picks = [f'{alias}."{name}" AS g{at}' for at, name in enumerate(shared)]
            sides.append(f"SELECT {word} AS part, {alias}.time AS t, {x} AS x{''.join(', ' + pick for pick in picks)} FROM {source.text}{self.where(source.columns)}")
        keys = [f"g{at}" for at in range(len(shared))]
        kinds = {"part": "text", "t": "time", "x": "num", **{key: "text" for key in keys}}
        return kinds, " UNION ALL ".join(sides), ["part", *keys, "t"]

    def joined(self):
        """Two tables side by side, by tags and time or by bins of it."""
        left, right = self.base(), self.base()
        shared = [tag for tag in left.table.tags if tag in right.table.tags]
        a, b = left.text.split()[-1], right.text.split()[-1]
        equal = lambda: self.rng.choice(["="] * 4 + ["IS NOT DISTINCT FROM"])
        conditions = [f"{a}.{tag} {equal()} {b}.{tag}" for tag in shared if self.chance(0.8)]
        if self.chance(0.75) or len(conditions) < max(len(left.table.tags), len(right.table.tags)):
            conditions.append(f"{a}.time = {b}.time")
        else:
            width = self.rng.choice(WIDTHS[:5])
            conditions.append(f"date_bin(INTERVAL '{width}', {a}.time) = date_bin(INTERVAL '{width}', {b}.time)")
        if self.chance(0.3):
            conditions.append(self.condition([*left.columns, *right.columns], 1))
        kind = self.rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        text = f"{left.text} {kind} {right.text} ON {' AND '.join(conditions)}"
        return Source(text, [*left.columns, *right.columns], [*left.identity, *right.identity])

    def source(self, depth):
        draw = self.rng.random()
        if depth > 0 and draw < 0.2:
            return self.derived(depth)
        if depth > 0 and draw < 0.4:
            return self.joined()
        return self.base()

    # Expressions

    def column(self, columns, kind):
        found = [column for column in columns if column.kind == kind]
        return self.rng.choice(found) if found else None

    def expression(self, columns, kind, depth):
        """An expression of a kind; a literal where nothing of the kind is in scope."""
        column = self.column(columns, kind)
        if depth <= 0 or (column and self.chance(0.35)):
            return column.text if column and self.chance(0.9) else self.literal(kind)
        return getattr(self, "make_" + kind)(columns, depth - 1)

    def literal(self, kind):
        if kind == "num":
            return self.rng.choice(["0.0", "-1.5", "3.0", "100.25", "1e3", "CAST('NaN' AS DOUBLE)", "-0.0", "CAST('Infinity' AS DOUBLE)"] + ["2.5", "-7.125"] * 3)
        if kind == "int":
            return str(self.rng.choice([0, 1, -1, 7, 20, 100, 32768, -129]))
        if kind == "text":
            return quote(self.rng.choice(TEXTS + ["h1", "h7"]))
        if kind == "bool":
            return self.rng.choice(["TRUE", "FALSE"])
        return f"TIMESTAMP '{self.time_text()}'"

    def time_text(self):
        table = self.rng.choice(self.tables)
        return table.start + datetime.timedelta(microseconds=self.rng.randint(-20, 700) * table.step_us)

    def double(self, columns, depth):
        """A number as DOUBLE, so that arithmetic means the same in both."""
        return f"CAST({self.expression(columns, self.rng.choice(['num', 'num', 'int']), depth)} AS DOUBLE)"

    def make_num(self, columns, depth):
        a, b = self.double(columns, depth), self.double(columns, depth)
        return self.rng.choice([
            f"({a} + {b})", f"({a} - {b})", f"({a} * 2.0)", f"({a} / 4.0)", f"abs({a})", f"coalesce({a}, {b})", f"nullif({a}, {b})",
            f"CASE WHEN {self.condition(columns, depth)} THEN {a} ELSE {b} END", f"(negative({a}))", f"({a} - {a})",
        ])

    def make_int(self, columns, depth):
        a, b = (f"CAST({self.expression(columns, 'int', depth)} AS BIGINT)" for _ in range(2))
        part = self.rng.choice(["hour", "minute", "day", "month", "year", "dow", "doy"])
        return self.rng.choice([
            f"({a} + {b})", f"({a} - {b})", f"({a} * 3)", f"({a} % 7)", f"abs({a})", f"coalesce({a}, {b})", f"nullif({a}, {b})",
            f"CASE WHEN {self.condition(columns, depth)} THEN {a} ELSE {b} END",
            f"CAST(length({self.expression(columns, 'text', depth)}) AS BIGINT)",
            f"CAST(extract({part} FROM {self.expression(columns, 'time', depth)}) AS BIGINT)",
        ])

    def make_text(self, columns, depth):
        a, b = (self.expression(columns, "text", depth) for _ in range(2))
        return self.rng.choice([
            f"upper({a})", f"lower({a})", f"({a} || {b})", f"concat({a}, {b})", f"substr({a}, {self.rng.randint(1, 3)}, 2)", f"replace({a}, 'a', 'xy')",
            f"coalesce({a}, {b})", f"nullif({a}, {b})", f"CASE WHEN {self.condition(columns, depth)} THEN {a} ELSE {b} END",
        ])

    def make_bool(self, columns, depth):
        return f"({self.condition(columns, depth)})"

    def make_time(self, columns, depth):
        a = self.expression(columns, "time", depth)
        return self.rng.choice([
            f"date_trunc('{self.rng.choice(UNITS)}', {a})", f"date_bin(INTERVAL '{self.rng.choice(WIDTHS)}', {a})",
            f"time_bucket(INTERVAL '{self.rng.choice(WIDTHS)}', {a})",
            f"({a} + INTERVAL '{self.rng.choice(WIDTHS)}')", f"coalesce({a}, {self.literal('time')})",
        ])

    # Conditions

    def condition(self, columns, depth):
        if depth > 0 and self.chance(0.4):
            a, b = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return self.rng.choice([f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"({a}) IS NOT TRUE"])
        kinds = exact_kinds(columns)
        return getattr(self, "compare_" + self.rng.choice(kinds))(columns, depth) if kinds else "TRUE"

    def compare_time(self, columns, depth):
        column = self.column(columns, "time").text
        a, b = sorted([self.time_text(), self.time_text()])
        zone = self.rng.choice(ZONES)
        return self.rng.choice([
            f"{column} >= TIMESTAMP '{a}' AND {column} < TIMESTAMP '{b}'", f"{column} BETWEEN TIMESTAMP '{a}' AND TIMESTAMP '{b}'", f"{column} >= '{a}'",
            f"{column} < TIMESTAMP '{b}'", f"{column} = TIMESTAMP '{a}'", f"{column} IN (TIMESTAMP '{a}', TIMESTAMP '{b}')",
            f"date_trunc('{self.rng.choice(UNITS)}', {column}) = TIMESTAMP '{a:%Y-%m-%d}'", f"date_bin(INTERVAL '1 hour', {column}) < TIMESTAMP '{b}'",
            f"CAST({column} AS DATE) > DATE '{a:%Y-%m-%d}'", f"NOT ({column} BETWEEN TIMESTAMP '{a}' AND TIMESTAMP '{b}')",
            f"({column} AT TIME ZONE '{zone}') >= TIMESTAMPTZ '{a}+00:00'",
            f"extract(hour FROM {column}) {self.rng.choice(['<', '=', '>='])} {self.rng.randint(0, 23)}",
            f"extract(year FROM {column}) {self.rng.choice(['<', '=', '<>', '>='])} {self.rng.choice([1677, 1969, 1970, a.year, 2262, 2300])}",
            f"CAST({column} AS TIME) {self.rng.choice(['<', '>='])} TIME '{b:%H:%M:%S}'",
            f"{column} > {self.expression(columns, 'time', depth)}",
        ])

    def compare_text(self, columns, depth):
        column = self.column(columns, "text").text
        a, b = self.literal("text"), self.literal("text")
        return self.rng.choice([
            f"{column} = {a}", f"{column} <> {a}", f"{column} IN ({a}, {b}, 'h3')", f"{column} NOT IN ({a}, {b})", f"{column} LIKE '%a%'", f"{column} LIKE 'h_'",
            f"{column} NOT LIKE '%o%'", f"{column} ILIKE 'S%'", f"{column} IS NULL", f"{column} IS NOT NULL", f"{column} IS DISTINCT FROM {a}",
            f"{column} IS NOT DISTINCT FROM {a}", f"{column} < {a}", f"{column} >= {a}", f"upper({column}) = 'AB'", f"length({column}) > 1",
            f"{self.expression(columns, 'text', depth)} = {self.expression(columns, 'text', depth)}", self.from_both_sides(column, a, b),
        ])

    def compare_num(self, columns, depth):
        column = self.column(columns, "num").text
        sign = self.rng.choice(["<", "<=", ">", ">=", "=", "<>"])
        return self.rng.choice([
            f"{column} {sign} {self.literal('num')}", f"{column} {sign} {self.rng.randint(-500, 500)}", f"{column} BETWEEN -50 AND {self.rng.randint(-50, 900)}.5",
            f"{column} IS NULL", f"{column} IS NOT NULL", f"{column} IN (0.0, 1.5, -2.25)", f"{column} IS DISTINCT FROM {self.literal('num')}",
            f"{self.double(columns, depth)} {sign} {self.double(columns, depth)}", f"{column} {sign} {self.literal('num')}",
            self.from_both_sides(column, self.literal("num"), self.literal("num")),
        ])

    def compare_int(self, columns, depth):
        column = self.column(columns, "int").text
        sign = self.rng.choice(["<", "<=", ">", ">=", "=", "<>"])
        return self.rng.choice([
            f"{column} {sign} {self.literal('int')}", f"{column} {sign} {self.rng.randint(-30, 300)}", f"{column} BETWEEN 0 AND {self.rng.randint(0, 900)}",
            f"{column} IS NULL", f"{column} IS NOT NULL", f"{column} IN (0, 1, 5, 17)", f"{column} NOT IN (2, 3)", f"{column} > 2.5",
            f"{self.double(columns, depth)} {sign} {self.double(columns, depth)}", f"{column} IS NOT DISTINCT FROM {self.literal('int')}",
            self.from_both_sides(column, self.literal("int"), self.literal("int")),
        ])

    def from_both_sides(self, column, a, b):
        """Comparisons with the column now on the left, now on the right."""
        sign = lambda: self.rng.choice(["<", "<=", ">", ">=", "="])
        return self.rng.choice([f"{column} = {a} AND {a} = {column}", f"{column} {sign()} {a} AND {b} {sign()} {column}", f"{a} {sign()} {column}"])

    def compare_bool(self, columns, _depth):
        column = self.column(columns, "bool").text
        return self.rng.choice([column, f"NOT {column}", f"{column} IS NULL", f"{column} IS TRUE", f"{column} = FALSE", f"{column} IS NOT FALSE"])

    def where(self, columns, depth=DEPTH_MAX):
        if self.chance(0.4):
            return ""
        parts = [self.condition(columns, self.rng.randint(0, depth - 1)) for _ in range(self.rng.choice([1, 1, 1, 2]))]
        if self.chance(0.15):
            parts.append(self.subquery_condition(columns))
        return f" WHERE {' AND '.join(f'({part})' for part in parts)}"

    def subquery_condition(self, columns):
        """A condition that asks another table."""
        other = self.base()
        shared = [kind for kind in ("time", "text", "int", "num") if self.column(columns, kind) and self.column(other.columns, kind)]
        if not shared:
            return self.condition(columns, 1)
        kind = self.rng.choice(shared)
        mine, theirs = self.column(columns, kind).text, self.column(other.columns, kind).text
        inner, beside = self.condition(other.columns, 1), self.condition(columns, 1)
        return self.rng.choice([
            f"{beside} OR {mine} {self.rng.choice(['IN', 'NOT IN'])} (SELECT {theirs} FROM {other.text} WHERE {inner})",
            f"NOT ({beside} AND {mine} IN (SELECT {theirs} FROM {other.text} WHERE {inner}))",
            f"({mine} IN (SELECT {theirs} FROM {other.text} WHERE {inner})) IS {self.rng.choice(['NULL', 'NOT TRUE', 'NOT FALSE'])}",
            f"(SELECT count(*) FROM {other.text} WHERE {theirs} = {mine} AND {inner}) {self.rng.choice(['<', '=', '>='])} {self.rng.randint(0, 3)}",
            f"{mine} IN (SELECT max({theirs}) OVER () FROM {other.text} WHERE {theirs} = {mine} AND {inner})",
            f"{mine} IN (SELECT {theirs} FROM {other.text} WHERE {inner})",
            f"EXISTS (SELECT 1 FROM {other.text} WHERE {theirs} = {mine} AND {inner})",
            f"NOT EXISTS (SELECT 1 FROM {other.text} WHERE {theirs} = {mine} AND {inner})",
            f"{mine} {self.rng.choice(['<', '>=', '='])} (SELECT {self.rng.choice(['min', 'max'])}({theirs}) FROM {other.text} WHERE {inner})",
        ])

    # Questions: each gives kinds of the columns, text, and the columns that tell rows apart

    def plain_rows(self, depth):
        source = self.source(depth)
        kinds, picks = {}, []
        for name in source.identity if self.chance(0.5) else []:
            alias = f"c{len(picks)}"
            kinds[alias] = next(column.kind for column in source.columns if column.text == name)
            picks.append(f"{name} AS {alias}")
        identity = list(kinds)
        for _ in range(self.rng.randint(0 if picks else 1, 4)):
            column = self.rng.choice(source.columns)
            alias = f"c{len(picks)}"
            kinds[alias] = column.kind
            plain = self.chance(0.6) or column.kind == "inexact"
            picks.append(f"{column.text if plain else self.expression(source.columns, column.kind, DEPTH_MAX - 1)} AS {alias}")
        return kinds, f"SELECT {', '.join(picks)} FROM {source.text}{self.where(source.columns)}", identity

    def aggregate(self, columns, source):
        """An aggregate and its kind."""
        kinds = exact_kinds(columns)
        if not kinds:
            return "int", "count(*)"
        kind = self.rng.choice(kinds)
        x = self.column(columns, kind).text if self.chance(0.7) else self.expression(columns, kind, 1)
        choices = [("int", f"count({x})"), (kind, f"min({x})"), (kind, f"max({x})"), ("int", f"count(DISTINCT {x})"), ("int", "count(*)")]
        if kind in ("num", "int"):
            x = x if self.chance(0.5) else f"CAST({x} AS DOUBLE)"
            as_double = f"CAST({x} AS DOUBLE)"
            # Of infinities and NaN DuckDB's variance is 0 or NaN, as it comes. What is far from zero is rounded when
            # parts are merged, by about 2e-16 * mean * deviation: up to a million that is less than the tolerance.
            finite = f"CASE WHEN abs({as_double}) < 1e6 THEN {x} END"
            choices += [("num", f"avg({x})"), ("inexact", f"stddev({finite})"), ("inexact", f"var_pop({finite})"), ("num", f"sum({as_double})")]
            choices += [("num", f"median({as_double})"), ("num", f"percentile_of({as_double}, {self.rng.choice([0.0, 0.05, 0.5, 0.95, 1.0])})")]
            choices += [("int" if kind == "int" else "num", f"sum({x})")] * 2
        if kind == "bool":
            choices = [("int", f"count({x})"), ("bool", f"bool_or({x})"), ("bool", f"bool_and({x})")]
        if source.table and len(source.identity) == 1 and kind != "bool":
            choices += [(kind, f"first_of({x}, {source.identity[0]})"), (kind, f"last_of({x}, {source.identity[0]})")]
        found, text = self.rng.choice(choices)
        if "_of(" not in text and self.chance(0.15):
            text += f" FILTER (WHERE {self.condition(columns, 1)})"
        return found if "AS DOUBLE" not in text or found != "int" or "count" in text else "num", text

    def keys(self, source):
        """What to group by: expressions and their kinds."""
        keys = []
        for _ in range(self.rng.choice([0, 1, 1, 2, 2])):
            kind = self.rng.choice(["text", "text", "time", "time", "time", "bool", "int", "num"])
            column = self.column(source.columns, kind)
            if column is None:
                continue
            text = column.text if kind != "time" and self.chance(0.8) else self.make_time(source.columns, 0) if kind == "time" else self.expression(source.columns, kind, 1)
            # A constant is a position to one of the two.
            if any(column.text in text for column in source.columns):
                keys.append((kind, text))
        return keys

    def grouped(self, depth):
        source = self.source(depth)
        keys = self.keys(source)
        kinds = {f"k{i}": kind for i, (kind, _) in enumerate(keys)}
        picks = [f"{text} AS k{i}" for i, (_, text) in enumerate(keys)]
        for place in range(self.rng.randint(1, 4)):
            kinds[f"a{place}"], text = self.aggregate(source.columns, source)
            picks.append(f"{text} AS a{place}")
        query = f"SELECT {', '.join(picks)} FROM {source.text}{self.where(source.columns)}"
        if keys:
            group = ", ".join(text for _, text in keys)
            query += f" GROUP BY {group}"
        if self.chance(0.15):
            query += f" HAVING {self.rng.choice(['count(*) > 2', 'max(' + self.rng.choice(source.columns).text + ') IS NOT NULL', 'count(*) BETWEEN 1 AND 40'])}"
        return kinds, query, [f"k{i}" for i in range(len(keys))]

    def grouping_sets(self):
        source = self.base()
        keys = [text for _, text in self.keys(source)]
        if len(keys) < 2 or len(set(keys)) < len(keys):
            return None
        form = self.rng.choice([f"ROLLUP ({', '.join(keys)})", f"CUBE ({', '.join(keys)})", f"GROUPING SETS (({keys[0]}), ({keys[1]}), ())"])
        _, text = self.aggregate(source.columns, source)
        picks = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        return Query(f"SELECT {picks}, {text} AS a0, count(*) AS n FROM {source.text}{self.where(source.columns)} GROUP BY {form}")

    def windowed(self):
        source = self.rng.choice([self.base, self.base, self.base, self.joined, lambda: self.derived(1), lambda: self.derived(1)])()
        if not source.identity:
            return None
        order = ", ".join(f"{name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for name in reversed(source.identity))
        parts = [name for name in source.identity if not name.endswith('time"')] if self.chance(0.5) else []
        if self.chance(0.3):
            parts = [column.text for column in source.columns if column.kind in ("text", "time", "bool", "int") and self.chance(0.4)]
        partition = f"PARTITION BY {', '.join(parts)} " if parts else ""
        picks = [f"{name} AS c{i}" for i, name in enumerate(source.identity)]
        for place in range(self.rng.randint(1, 3)):
            kind = self.rng.choice(["num", "int", "text"])
            column = self.column(source.columns, kind) or self.rng.choice(source.columns)
            x = column.text
            frame = self.rng.choice(["", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", " ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING"])
            plain = self.rng.choice(["row_number()", "rank()", "dense_rank()", "ntile(3)", f"lag({x})", f"lead({x}, 2)"])
            framed = self.rng.choice([f"first_value({x})", f"last_value({x})", f"min({x})", f"max({x})", f"count({x})"])
            if column.kind in ("num", "int"):
                spread = self.rng.choice(["stddev", "stddev_pop", "var_samp", "var_pop"])
                double = f"CAST({x} AS DOUBLE)"
                # Of infinities, and of a single NaN, DuckDB's variance is 0 or NaN, as it comes.
                or_nan = "" if spread.endswith("_pop") else f" OR isnan({double})"
                finite = f"CASE WHEN abs({double}) < 1e6{or_nan} THEN {double} END"
                framed = self.rng.choice([framed, f"sum({double})", f"avg({double})", f"{spread}({finite})"])
            over = f"{plain} OVER ({partition}ORDER BY {order})" if self.chance(0.5) else f"{framed} OVER ({partition}ORDER BY {order}{frame})"
            picks.append(f"{over} AS w{place}")
        text = f"SELECT {', '.join(picks)} FROM {source.text}{self.where(source.columns)}"
        if any(spread in over for spread in ("sum(", "avg(", "std", "var")) or self.chance(0.5):
            return Query(text)
        # The last of them orders the rows, perhaps within the partitions.
        keys = [*(f"c{source.identity.index(name)}" for name in parts if name in source.identity and self.chance(0.8)), f"w{place}"]
        keys += [f"c{i}" for i in range(len(source.identity)) if f"c{i}" not in keys]
        order = ", ".join(f"{key} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for key in keys)
        return Query(f"SELECT * FROM ({text}) AS {self.alias()} ORDER BY {order}{self.limit()}", ordered=True)

    def ranked(self):
        """The first rows in an order that leaves no choice."""
        source = self.base() if self.chance(0.7) else self.joined()
        picks = [f"{column.text} AS c{i}" for i, column in enumerate(self.rng.sample(source.columns, self.rng.randint(1, len(source.columns))))]
        firsts = [self.rng.choice(source.columns).text for _ in range(self.rng.choice([0, 1, 1]))]
        keys = list(dict.fromkeys([*firsts, *(source.identity if self.chance(0.5) else reversed(source.identity))]))
        order = ", ".join(f"{key} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for key in keys)
        limit = f" LIMIT {self.rng.choice([1, 3, 10, 100])}" if self.chance(0.8) else ""
        offset = f" OFFSET {self.rng.choice([1, 5, 50])}" if limit and self.chance(0.2) else ""
        return Query(f"SELECT {', '.join(picks)} FROM {source.text}{self.where(source.columns)} ORDER BY {order}{limit}{offset}", ordered=True)

    def reordered(self):
        """The first rows in one order, looked at in another one; most orders are those in which rows are stored."""
        kinds, query, identity = self.rng.choice([self.parts, self.parts, self.plain_rows])(0)
        if not identity:
            return None
        way = lambda: "ASC" if self.chance(0.85) else "DESC NULLS LAST"
        inner, outer = (self.rng.sample(identity, len(identity)) for _ in range(2))
        alias = self.alias()
        first = f"SELECT * FROM ({query}) AS {self.alias()} ORDER BY {', '.join(f'{key} {way()}' for key in inner)}{self.limit()}"
        shown = ", ".join(f"{alias}.{name}" for name in kinds)
        order = [f"{alias}.{key} {way()}" for key in outer]
        if self.chance(0.4):
            return Query(f"SELECT {shown} FROM ({first}) AS {alias} ORDER BY {', '.join(order)}", ordered=True)
        partition = f"PARTITION BY {alias}.{self.rng.choice(identity)} " if self.chance(0.6) else ""
        windows = ", ".join(f"{call} OVER ({partition}ORDER BY {', '.join(order)}) AS w{place}" for place, call in enumerate(["row_number()", "count(*)"]))
        return Query(f"SELECT {shown}, {windows} FROM ({first}) AS {alias}")

    def nested(self):
        """Orders, first rows, conditions and numbers of rows within each other."""
        kinds, query, identity = self.rng.choice([self.parts, self.plain_rows, self.grouped])(0)
        if not identity:
            return None
        kinds = dict(kinds)
        for place in range(self.rng.randint(1, 4)):
            alias = self.alias()
            columns = [Column(f"{alias}.{name}", kind) for name, kind in kinds.items()]
            sorted_rows = f"SELECT * FROM ({query}) AS {self.alias()} ORDER BY {self.order(kinds, identity)}"
            form = self.rng.choice(["order", "order", "first", "where", "number", "window", "distinct"])
            if form == "order":
                query = sorted_rows
            elif form == "first":
                query = sorted_rows + self.limit()
            elif form == "where":
                query = f"SELECT * FROM ({query}) AS {alias}{self.where(columns)}"
            elif form == "distinct":
                query = f"SELECT DISTINCT * FROM ({query}) AS {alias}"
            elif form == "number":
                query, kinds[f"n{place}"] = f"SELECT *, row_number() OVER () AS n{place} FROM ({sorted_rows}) AS {alias}", "int"
            else:
                partition = f"PARTITION BY {self.rng.choice(identity)} " if self.chance(0.7) else ""
                order = f"ORDER BY {self.order(kinds, identity)}" if self.chance(0.7) else ""
                query, kinds[f"n{place}"] = f"SELECT *, count(*) OVER ({partition}{order}) AS n{place} FROM ({query}) AS {alias}", "int"
        if self.chance(0.2):
            return Query(f"SELECT count(*) AS n FROM ({query} LIMIT 5) AS {self.alias()}" if query.endswith(("FIRST", "LAST")) else f"SELECT count(*) AS n FROM ({query}) AS {self.alias()}")
        return Query(f"SELECT * FROM ({query}) AS {self.alias()} ORDER BY {self.order(kinds, identity)}{self.limit() if self.chance(0.5) else ''}", ordered=True)

    def ranked_groups(self):
        kinds, query, identity = self.grouped(1)
        if not identity:
            return None
        first = self.rng.choice(list(kinds))
        keys = list(dict.fromkeys([first, *identity]))
        order = ", ".join(f"{key} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for key in keys)
        # A float that was summed in another order may change places with its neighbour.
        limit = f" LIMIT {self.rng.choice([1, 5, 20])}" if kinds[first] not in ("num", "inexact") else ""
        return Query(f"{query} ORDER BY {order}{limit}", ordered=bool(limit))

    def joined_groups(self):
        """Groups by columns of both sides of a join."""
        source = self.joined()
        names = [column.text for column in source.columns if column.kind in ("text", "time", "bool")]
        keys = self.rng.sample(names, min(len(names), self.rng.randint(1, 3)))
        picks = [f"{text} AS k{i}" for i, text in enumerate(keys)]
        if self.chance(0.2):
            return Query(f"SELECT DISTINCT {', '.join(picks)} FROM {source.text}{self.where(source.columns)}")
        if self.chance(0.2):
            counted = f"count(*) OVER (PARTITION BY {', '.join(keys)}) AS n"
            return Query(f"SELECT {', '.join(picks)}, {counted} FROM {source.text}{self.where(source.columns)}")
        _, text = self.aggregate(source.columns, source)
        return Query(f"SELECT {', '.join(picks)}, {text} AS a0, count(*) AS n FROM {source.text}{self.where(source.columns)} GROUP BY {', '.join(keys)}")

    def small_side(self):
        """Groups by columns of a small side, which a value of the other side tells."""
        left, right, kind = self.base(), self.base(), self.rng.choice(["int", "int", "text", "time"])
        value, key = self.column(left.columns, kind), self.column(right.columns, kind)
        group = self.column(right.columns, self.rng.choice(["text", "int", "bool", "num"]))
        if value is None or key is None or group is None:
            return None
        as_int = (lambda text: f"CAST({text} AS BIGINT)") if kind == "int" else (lambda text: text)
        small = f"SELECT {self.rng.choice(['', 'DISTINCT '])}{as_int(key.text)} AS k, {group.text} AS g FROM {right.text}{self.where(right.columns)}"
        join = f"{self.rng.choice(['JOIN', 'JOIN', 'LEFT JOIN'])} ({small}) AS s ON {as_int(value.text)} = s.k"
        if self.chance(0.2):
            join += f" AND {self.condition(left.columns, 1)}"
        picks = [self.aggregate(left.columns, left)[1] for _ in range(self.rng.randint(1, 3))]
        picks = ", ".join(f"{text} AS a{place}" for place, text in enumerate(picks))
        keys = self.rng.choice(["s.g", "s.g", "s.g", "s.k", f"s.g, {self.rng.choice(left.columns).text}", ""])
        where = f" FROM {left.text} {join}{self.where(left.columns)}"
        if not keys:
            return Query(f"SELECT count(*) AS n, {picks}{where}")
        named = ", ".join(f"{text} AS k{place}" for place, text in enumerate(keys.split(", ", 1)))
        return Query(f"SELECT {named}, count(*) AS n, {picks}{where} GROUP BY {keys}")

    def daily(self):
        """Groups by the time of day."""
        source = self.source(1)
        column = self.column(source.columns, "time")
        if column is None:
            return None
        _, text = self.aggregate(source.columns, source)
        return Query(f"SELECT {text} AS a0, count(*) AS n FROM {source.text}{self.where(source.columns)} GROUP BY CAST({column.text} AS TIME)")

    def joined_using(self):
        """An outer join whose common columns have a value in all rows."""
        left, right = self.base(), self.base()
        shared = ["time", *(tag for tag in left.table.tags if tag in right.table.tags and self.chance(0.8))]
        own = [column for column in [*left.columns, *right.columns] if not any(column.text.endswith(f'"{name}"') for name in shared)]
        text = f"{left.text} {self.rng.choice(['FULL', 'RIGHT', 'LEFT', 'INNER'])} JOIN {right.text} USING ({', '.join(shared)})"
        where = self.rng.choice(["", f" WHERE time >= TIMESTAMP '{self.time_text()}'"])
        if self.chance(0.4):
            return Query(f"SELECT date_trunc('hour', time) AS t, count(*) AS n FROM {text}{where} GROUP BY 1")
        picks = [*shared, *(f"{column.text} AS c{i}" for i, column in enumerate(self.rng.sample(own, min(len(own), 2))))]
        return Query(f"SELECT {', '.join(picks)} FROM {text}{where}")

    def first_values(self):
        """The first few different values."""
        source = self.base()
        column = self.column(source.columns, self.rng.choice(["num", "num", "int", "time", "text"])) or source.columns[0]
        order = f"c0 {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])} LIMIT {self.rng.choice([1, 2, 3, 10])}"
        return Query(f"SELECT DISTINCT {column.text} AS c0 FROM {source.text}{self.where(source.columns)} ORDER BY {order}", ordered=True)

    def set_operation(self):
        word = self.rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        kind = self.rng.choice(["text", "time", "int", "num"])
        sides = []
        for _ in range(self.rng.choice([2, 2, 3])):
            source = self.base()
            column = self.column(source.columns, kind)
            if column is None:
                return None
            x = f"CAST({column.text} AS {'BIGINT' if kind == 'int' else 'DOUBLE'})" if kind in ("int", "num") else column.text
            if self.chance(0.2):
                constant = {"text": quote(self.rng.choice(TEXTS)), "time": f"TIMESTAMP '{self.time_text()}'"}.get(kind)
                x = constant or f"CAST({self.literal(kind)} AS {'BIGINT' if kind == 'int' else 'DOUBLE'})"
            sides.append(f"SELECT {x} AS x, {self.column(source.columns, 'time').text} AS t FROM {source.text}{self.where(source.columns)}")
        text = f" {word} ".join(sides)
        if self.chance(0.7):
            return Query(text)
        order = f"x {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])} LIMIT {self.rng.choice([1, 2, 5])}"
        return Query(f"SELECT x FROM ({text}) AS u ORDER BY {order}", ordered=True)

    def distinct(self):
        source = self.source(1)
        columns = [column for column in source.columns if column.kind != "inexact"]
        if not columns:
            return None
        picks = self.rng.sample(columns, min(len(columns), self.rng.randint(1, 3)))
        texts = [column.text if self.chance(0.6) else self.expression(source.columns, column.kind, 1) for column in picks]
        return Query(f"SELECT DISTINCT {', '.join(f'{text} AS c{i}' for i, text in enumerate(texts))} FROM {source.text}{self.where(source.columns)}")

    def scalars(self):
        """Several totals side by side, each a question of its own."""
        picks = []
        for place in range(self.rng.randint(2, 3)):
            source = self.base() if self.chance(0.5) else self.derived(1)
            _, text = self.aggregate(source.columns, source)
            picks.append(f"(SELECT {text} FROM {source.text}{self.where(source.columns)}) AS s{place}")
        return Query(f"SELECT {', '.join(picks)}")

    def named_twice(self):
        """A common table expression that is used twice."""
        kinds, query, identity = self.grouped(1)
        if not identity:
            return None
        on = " AND ".join(f"a.{key} IS NOT DISTINCT FROM b.{key}" for key in identity)
        picks = ", ".join(f"a.{name} AS {name}, b.{name} AS {name}_b" for name in kinds)
        return Query(f"WITH q AS ({query}) SELECT {picks} FROM q AS a JOIN q AS b ON {on}")

    def query(self):
        """A question of any form."""
        while True:
            draw = self.rng.random()
            if draw < 0.2:
                found = Query(self.plain_rows(2)[1])
            elif draw < 0.5:
                found = Query(self.grouped(2)[1])
            else:
                forms = [self.windowed, self.ranked, self.ranked, self.ranked_groups, self.set_operation, self.distinct, self.scalars, self.named_twice, self.grouping_sets,
                         self.joined_groups, self.joined_groups, self.small_side, self.small_side, self.daily, self.joined_using, self.first_values, self.reordered,
                         self.nested, self.nested]
                found = self.rng.choice(forms)()
            if found is not None:
                return found

"""Asks Tidefall and DuckDB the same questions about the same readings, in every place that they can be.

    python run.py --binary PATH [--data DIR] [--only SET] [--keep]

Without --data the small data of the repository is used. For each data set: import into a fresh
database, compare; move to short columns, compare; late, corrected and deleted readings on top,
compare; move to long columns, compare; more of the same on top of those, compare; make it all one,
compare. Floats agree within 1e-9, all else exactly. `--check-duckdb` runs DuckDB's half alone, and
fails on a question that tells nothing. The last line counts: N passed, N failed, N skipped.
"""

import argparse
import csv
import gzip
import io
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import duckdb
import pyarrow

import mutations
import queries
from datasets import SETS, TABLES

TOLERANCE = 1e-9
# A command that takes longer has hung.
COMMAND_SECONDS_MAX = 600
# Rows of an answer that are shown when it is wrong.
SHOWN = 3

TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:Z|\+00:00)?$")


class CommandFailed(Exception):
    """A command of Tidefall ended with an error."""


class Tidefall:
    """A database folder, reached through the command line only."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def run(self, *args):
        command = [self.binary, *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
        if done.returncode != 0:
            raise CommandFailed(f"{' '.join(command)[:600]}\nexit {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
        return done

    def import_files(self, table, files, args):
        return self.run("import", *files, "--db", self.folder, "--table", table, "--ack", "durable", *args)

    def sql(self, text, form="json"):
        return self.run("query", "--db", self.folder, "--format", form, text).stdout

    def cascade(self, target):
        self.run("cascade", "--db", self.folder, "--to", target)


class Score:
    """What passed, failed and was skipped."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, problem):
        if problem is None:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {name}\n  {problem}", flush=True)


def time_ns(text):
    """Nanoseconds since 1970 of a written time."""
    found = TIME.match(text)
    if not found:
        raise ValueError(f"{text!r} is not a time")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction = int((found.group(7) or "0").ljust(9, "0"))
    month_from_march = (month + 9) % 12
    year -= month <= 2
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month_from_march + 2) // 5 + day - 1 - 719468
    return ((days * 24 + hour) * 60 + minute) * 60_000_000_000 + second * 1_000_000_000 + fraction


def ask_duckdb(duck, text):
    """The answer as column names, kinds (time, number, text, bool) and rows."""
    table = duck.sql(queries.duckdb(text)).to_arrow_table()
    kinds, columns = [], []
    for column in table.columns:
        kind = column.type
        if pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind):
            kinds.append("time")
            columns.append(column.cast(pyarrow.timestamp("ns")).cast(pyarrow.int64()).to_pylist())
        elif pyarrow.types.is_boolean(kind):
            kinds.append("bool")
            columns.append(column.to_pylist())
        elif pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
            kinds.append("text")
            columns.append(column.to_pylist())
        else:
            kinds.append("number")
            columns.append([int(v) if v is not None and not isinstance(v, float) else v for v in column.to_pylist()])
    return table.column_names, kinds, list(zip(*columns)) if table.num_rows else []


def rows_of_json(text, names):
    """Rows out of a list of objects, one object a line, or {"columns", "rows"}."""
    text = text.strip()
    if not text:
        return []
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        answer = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(answer, dict) and "rows" in answer:
        return [tuple(row) for row in answer["rows"]]
    if isinstance(answer, dict):
        answer = [answer]
    # Aliases without quotes come back in lower case from one and as written from the other.
    folded = ({key.lower(): value for key, value in row.items()} for row in answer)
    return [tuple(row.get(name.lower()) for name in names) for row in folded]


def rows_of_csv(text, _names):
    return [tuple(cell if cell != "" else None for cell in row) for row in list(csv.reader(io.StringIO(text)))[1:]]


def value_of(cell, kind):
    """A cell of Tidefall's answer as a value of the kind that DuckDB's has."""
    if cell is None:
        return None
    if kind == "time":
        return time_ns(cell) if isinstance(cell, str) else cell
    if kind == "number":
        if isinstance(cell, str):
            return int(cell) if re.fullmatch(r"-?\d+", cell) else float(cell)
        return cell
    if kind == "bool":
        return cell if isinstance(cell, bool) else {"true": True, "false": False}[cell.lower()]
    return str(cell)


def same(mine, yours):
    if mine is None or yours is None:
        return mine is None and yours is None
    if isinstance(mine, float) or isinstance(yours, float):
        return math.isclose(mine, yours, rel_tol=TOLERANCE, abs_tol=1e-12)
    return mine == yours


def sort_key(row):
    """Groups come first by what is exact; floats are rounded, so that their noise does not sort."""
    return tuple(
        (v is not None, float(f"{v:.6g}") if isinstance(v, float) else v) if not isinstance(v, str) else (True, v) for v in row
    )


def by_exact_columns(rows, kinds):
    """Sorts by times and text before numbers, so that rows meet their partners."""
    order = sorted(range(len(kinds)), key=lambda i: kinds[i] == "number")
    return sorted(rows, key=lambda row: tuple(sort_key((row[i],)) for i in order))


def difference(query, kinds, mine, yours):
    """What is wrong with Tidefall's rows `mine`, or None."""
    if len(mine) != len(yours):
        return f"{len(mine)} rows, DuckDB has {len(yours)}\n  tidefall {mine[:SHOWN]}\n  duckdb   {yours[:SHOWN]}\n  {query.text}"
    if not query.ordered:
        mine, yours = by_exact_columns(mine, kinds), by_exact_columns(yours, kinds)
    wrong = [(i, a, b) for i, (a, b) in enumerate(zip(mine, yours)) if len(a) != len(b) or not all(map(same, a, b))]
    if not wrong:
        return None
    shown = "".join(f"\n  row {i}\n    tidefall {a}\n    duckdb   {b}" for i, a, b in wrong[:SHOWN])
    return f"{len(wrong)} of {len(mine)} rows differ{shown}\n  {query.text}"


def compare(ours, query, answer, form="json"):
    names, kinds, yours = answer
    try:
        text = ours.sql(queries.tidefall(query.text), form)
        rows = (rows_of_json if form == "json" else rows_of_csv)(text, names)
        mine = [tuple(value_of(cell, kind) for cell, kind in zip(row, kinds)) for row in rows]
    except (CommandFailed, subprocess.TimeoutExpired, ValueError, KeyError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return difference(query, kinds, mine, yours)


class SetRun:
    """One data set in one database, compared in one state after the other."""

    def __init__(self, name, options, score):
        self.name, self.options, self.score = name, options, score
        self.tables = [table for table in SETS[name] if table.paths(options.data)]
        present = {table.name for table in self.tables}
        mine = {table.name for table in SETS[name]}
        asked = [query for query in queries.QUERIES if mine & set(query.tables())]
        self.queries = [query for query in asked if present >= set(query.tables())]
        score.skipped += len(asked) - len(self.queries)
        self.duck = duckdb.connect(config={"threads": 2})
        self.folder = tempfile.mkdtemp(prefix="tidefall-duckdb-")
        self.ours = Tidefall(options.binary, self.folder + "/db")

    def load(self):
        for table in self.tables:
            table.load(self.duck, self.options.data)
            kept = self.duck.execute(f"SELECT count(*) FROM {table.name}").fetchall()[0][0]
            wanted = table.rows_kept(self.options.data)
            self.score.check(f"{self.name}: DuckDB's {table.name}", None if kept == wanted else f"{kept} rows, expected {wanted}")
            if self.options.check_duckdb:
                continue
            try:
                self.ours.import_files(table.name, table.paths(self.options.data), table.import_args)
                self.score.check(f"{self.name}: import of {table.name}", None)
            except (CommandFailed, subprocess.TimeoutExpired) as error:
                self.score.check(f"{self.name}: import of {table.name}", str(error))

    def answers(self):
        found = {}
        for query in self.queries:
            found[query.name] = ask_duckdb(self.duck, query.text)
            rows = found[query.name][2]
            told = bool(rows) and (len(rows) > 1 or any(v is not None for v in rows[0]))
            if self.options.check_duckdb:
                print(f"{self.name:12} {query.name:40} {len(rows):6} rows  {str(rows[0])[:110] if rows else ''}")
                self.score.check(query.name, None if told != query.empty else "DuckDB's answer tells nothing")
        return found

    def compare_all(self, state, answers, form="json"):
        before = self.score.failed
        if not self.options.check_duckdb:
            for query in self.queries:
                problem = compare(self.ours, query, answers[query.name], form)
                self.score.check(f"{self.name}, {state}: {query.name}", problem)
            print(f"{self.name}, {state}: {len(self.queries)} questions, {self.score.failed - before} wrong", flush=True)

    def cascade(self, target):
        if not self.options.check_duckdb:
            try:
                self.ours.cascade(target)
            except (CommandFailed, subprocess.TimeoutExpired) as error:
                self.score.check(f"{self.name}: cascade to {target}", str(error))

    def mutate(self, steps):
        present = {table.name for table in self.tables}
        for step in steps:
            if step.table not in present:
                continue
            mutations.apply_duckdb(self.duck, step, TABLES)
            if self.options.check_duckdb:
                continue
            try:
                mutations.apply_tidefall(self.ours, step, TABLES, self.folder)
                self.score.check("", None)
            except (CommandFailed, subprocess.TimeoutExpired) as error:
                self.score.check(f"{self.name}: {step}", str(error))

    def run(self):
        self.load()
        answers = self.answers()
        self.compare_all("key-value", answers)
        self.cascade("short")
        self.compare_all("short", answers, "csv")
        self.mutate(mutations.LATE)
        answers = self.answers()
        self.compare_all("short and late", answers)
        self.cascade("long")
        self.compare_all("long", answers)
        self.mutate(mutations.LATER)
        answers = self.answers()
        self.compare_all("long and late", answers)
        self.cascade("long")
        self.compare_all("long again", answers)
        if self.options.keep:
            print(f"kept {self.folder}")
        else:
            shutil.rmtree(self.folder)


def check_dirty_file(options, score):
    """The taxi file with corrupt times: 154 lines are set aside, named and written to a file."""
    path = pathlib.Path(options.data or "") / "taxi/2013_all_fields_dirty.csv.gz"
    if not options.data or not path.exists():
        score.skipped += 1
        return
    duck = duckdb.connect()
    good = f"read_csv('{path}', all_varchar = true) WHERE try_cast(pickup_datetime AS TIMESTAMP) IS NOT NULL"
    kept = duck.execute(f"SELECT count(DISTINCT (medallion, hack_license, pickup_datetime)) FROM {good}").fetchall()[0][0]
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        if options.check_duckdb:
            return
        bad = pathlib.Path(folder) / "bad.csv"
        ours = Tidefall(options.binary, folder + "/db")
        args = ["--time", "pickup_datetime", "--tags", "medallion,hack_license"]
        try:
            done = ours.import_files("taxi", [str(path)], [*args, "--bad-rows", str(bad)])
            score.check("dirty file: 154 is said", None if "154" in done.stdout + done.stderr else done.stdout + done.stderr)
            texts = bad.read_text()
            found = sum(line in texts for line in lines[1:])
            score.check("dirty file: bad lines written", None if found == 154 else f"{found} lines of the file are in {texts[:500]}")
            rows = rows_of_json(ours.sql("SELECT count(*) AS n FROM taxi"), ["n"])
            score.check("dirty file: good rows", None if rows == [(kept,)] else f"{rows}, DuckDB has {kept}")
        except (CommandFailed, subprocess.TimeoutExpired, OSError) as error:
            score.check("dirty file", str(error))
        ours = Tidefall(options.binary, folder + "/db2")
        try:
            ours.import_files("taxi", [str(path)], args)
            score.check("dirty file: refused unless asked", "exit 0 although lines are bad and --bad-rows was not given")
        except CommandFailed as error:
            score.check("dirty file: refused unless asked", None if "line 2" in str(error).lower() else str(error))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="tidefall", help="the tidefall to test")
    parser.add_argument("--data", help="folder of the full data sets")
    parser.add_argument("--only", choices=SETS, help="one data set")
    parser.add_argument("--keep", action="store_true", help="keep the databases")
    parser.add_argument("--check-duckdb", action="store_true", help="DuckDB's half alone")
    options = parser.parse_args()
    score = Score()
    for name in [options.only] if options.only else SETS:
        run = SetRun(name, options, score)
        # A set of which nothing is carried has no database.
        if run.tables:
            run.run()
    if not options.only:
        check_dirty_file(options, score)
    print(f"{score.passed} passed, {score.failed} failed, {score.skipped} skipped")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()

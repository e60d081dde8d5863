"""Asks Tidefall and DuckDB thousands of random questions about random tables in every mixture of models.

    python run.py [--queries N] [--seed S] [--case K]

Needs the package tidefall and DuckDB. Case K of seed S has its own tables, history and questions, whichever cases
are run; what is wrong is printed with the words to run it again. The last line counts: N passed, N failed, N skipped.
"""

import argparse
import decimal
import math
import random
import re
import shutil
import sys
import tempfile
import time

import duckdb
import pyarrow
import tidefall

from differences import INTENDED, NOT_ASKED
from generator import MACROS, Generator, for_tidefall
from tables import History

# Questions in one state of a case, and states of a case.
QUESTIONS = 17
STATES = 3
TOLERANCE = 1e-9
TOLERANCE_NEAR_ZERO = 1e-6
# Larger answers than this tell nothing more.
ROWS_MAX = 200_000
SHOWN = 3


def plain(value):
    """A cell as a number, text, boolean or None; times are microseconds."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def cells(column):
    """The cells of a column of Arrow."""
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind):
        zone = getattr(kind, "tz", None)
        return column.cast(pyarrow.timestamp("ns", zone)).cast(pyarrow.int64()).to_pylist()
    return [plain(value) for value in column.to_pylist()]


def rows_of(table):
    return list(zip(*(cells(column) for column in table.columns)))


def key_of(value):
    """Where a cell stands in an order that has a place for everything; floats are rounded, so that noise does not sort."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (3, value)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, float(f"{value:.10g}") + 0.0 if isinstance(value, float) else value)


def identity(value):
    """What tells a cell from others for a DISTINCT: there is one NaN, and one zero."""
    if isinstance(value, float):
        return ("NaN",) if math.isnan(value) else (value + 0.0,)
    return (type(value) is str, value)


def is_exact(column):
    return not any(isinstance(value, float) for value in column)


def sort_rows(rows):
    """Rows by their exact columns first, so that they meet their partners."""
    if not rows:
        return rows
    places = range(len(rows[0]))
    exact = {place: is_exact([row[place] for row in rows]) for place in places}
    order = sorted(places, key=lambda place: not exact[place])
    return sorted(rows, key=lambda row: [key_of(row[place]) for place in order])


def same(mine, yours):
    if mine is None or yours is None:
        return mine is None and yours is None
    if isinstance(mine, float) or isinstance(yours, float):
        if math.isnan(mine) or math.isnan(yours):
            return math.isnan(mine) and math.isnan(yours)
        return mine == yours or math.isclose(mine, yours, rel_tol=TOLERANCE, abs_tol=TOLERANCE_NEAR_ZERO)
    return mine == yours and isinstance(mine, str) == isinstance(yours, str)


def merged(rows):
    """Rows without those that are the same but for noise, which one side may tell apart and the other not."""
    kept = []
    for row in sort_rows(rows):
        if not kept or not all(map(same, kept[-1], row)):
            kept.append(row)
    return kept


def difference(mine, yours, ordered, distinct=False):
    """What is wrong with Tidefall's rows, or None."""
    if distinct:
        alike = len(mine) - len({tuple(map(identity, row)) for row in mine})
        if alike:
            return f"{alike} rows of a DISTINCT are there twice"
        if len(mine) != len(yours) and any(isinstance(value, float) for row in mine + yours for value in row):
            # DuckDB's percentiles are 12.999999999999998 where they are 13, of which another group may have that.
            mine, yours, ordered = merged(mine), merged(yours), False
    if len(mine) != len(yours):
        return f"{len(mine)} rows, DuckDB has {len(yours)}\n  tidefall {mine[:SHOWN]}\n  duckdb   {yours[:SHOWN]}"
    if not ordered:
        mine, yours = sort_rows(mine), sort_rows(yours)
    wrong = [(a, b) for a, b in zip(mine, yours) if len(a) != len(b) or not all(map(same, a, b))]
    if not wrong:
        return None
    return f"{len(wrong)} of {len(mine)} rows differ" + "".join(f"\n  tidefall {a}\n  duckdb   {b}" for a, b in wrong[:SHOWN])


class Run:
    """All cases, and what came of them."""

    def __init__(self, options):
        self.options = options
        self.passed = self.failed = self.skipped = 0
        self.reasons = {}

    def skip(self, why):
        self.skipped += 1
        self.reasons[why] = self.reasons.get(why, 0) + 1

    def fail(self, case, words, problem):
        self.failed += 1
        print(f"FAILED --seed {self.options.seed} --case {case}\n  {problem}\n  {words}", flush=True)

    def case(self, number):
        """A history of some tables, and questions in each of its states."""
        rng = random.Random(f"{self.options.seed}/{number}")
        duck = duckdb.connect(config={"threads": 2})
        duck.execute("SET TimeZone = 'UTC'")
        for macro in MACROS:
            duck.execute(macro)
        history = History(rng.random(), duck)
        folder = tempfile.mkdtemp(prefix="tidefall-differential-")
        try:
            db = tidefall.open(folder + "/db")
            history.create(db)
            for _ in range(STATES):
                history.advance(db)
                if rng.random() < 0.3:
                    db.close()
                    db = tidefall.open(folder + "/db")
                if rng.random() < 0.25:
                    db.sql("SET tidefall.metrics = off")
                generator = Generator(random.Random(rng.random()), history.tables)
                for _ in range(QUESTIONS):
                    self.ask(number, db, duck, generator.query())
            db.close()
        finally:
            duck.close()
            shutil.rmtree(folder, ignore_errors=True)

    def ask(self, case, db, duck, query):
        if self.options.show:
            print(query.text, flush=True)
        try:
            yours = duck.sql(query.text).to_arrow_table()
        except duckdb.Error as error:
            known = next((why for pattern, why in NOT_ASKED if re.search(pattern, str(error))), None)
            return self.skip(known) if known else self.fail(case, query.text, f"DuckDB refuses: {str(error)[:600]}")
        if yours.num_rows > ROWS_MAX:
            return self.skip("the answer is too large")
        try:
            mine = db.sql(for_tidefall(query.text)).to_arrow()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic is none of Exception
            known = next((why for pattern, why in INTENDED if re.search(pattern, str(error))), None)
            return self.skip(known) if known else self.fail(case, query.text, f"{type(error).__name__}: {str(error)[:600]}")
        distinct = query.text.startswith("SELECT DISTINCT")
        problem = difference(rows_of(mine), rows_of(yours), query.ordered, distinct)
        if problem:
            self.fail(case, query.text, problem)
        else:
            self.passed += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=3000, help="about how many questions")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other tables and questions")
    parser.add_argument("--case", type=int, help="one case alone")
    parser.add_argument("--show", action="store_true", help="print every question before it is asked")
    options = parser.parse_args()
    run, begin = Run(options), time.monotonic()
    cases = [options.case] if options.case is not None else range(-(-options.queries // (QUESTIONS * STATES)))
    for number in cases:
        run.case(number)
    for why, count in sorted(run.reasons.items()):
        print(f"{count} not compared: {why}")
    print(f"random questions of seed {options.seed}: {time.monotonic() - begin:.0f} s")
    print(f"{run.passed} passed, {run.failed} failed, {run.skipped} skipped")
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()

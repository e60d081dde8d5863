"""The table of what cliffs.py measured, beside the same before the cliffs were taken away."""

import json
import pathlib

# What cliffs.py --label before printed of an earlier version, and of DuckDB in the same run, where that is kept.
BEFORE = pathlib.Path(__file__).with_name("cliffs_before.jsonl")


def tables(lines):
    """Markdown: each question or load with Tidefall before and now, and DuckDB."""
    before = [json.loads(line) for line in BEFORE.read_text().splitlines()] if BEFORE.exists() else []
    before = {line["bench"]: line for line in before if line["system"] == "Tidefall"}
    now = {(line["bench"], line["system"]): line for line in lines}
    first = {system: next(line for line in lines if line["system"] == system) for system in ("Tidefall", "DuckDB")}
    yield "### Cliffs\n"
    yield "Questions at which earlier versions took long or failed (cliffs.py), in milliseconds; loads in rows per second. "
    for line in first.values():
        yield f"{line['system']} {line['version']}: {line['settings']}. "
    yield "\n| | before | Tidefall | DuckDB | times DuckDB's time |\n|---|---:|---:|---:|---:|"
    for name in dict.fromkeys(line["bench"] for line in lines):
        ours, theirs = now.get((name, "Tidefall")), now.get((name, "DuckDB"))
        title = name.removeprefix("cliff: ")
        yield f"| {title} | {cell(before.get(name))} | {cell(ours)} | {cell(theirs)} | {ratio(ours, theirs)} |"
    yield ""


def cell(line):
    if line is None:
        return ""
    if "error" in line:
        return "fails"
    if line["unit"] == "rows/s":
        return f"{line['median'] / 1e6:.2f} M/s"
    return f"{line['median']:.3g} ({line['spread']:.0%})"


def ratio(ours, theirs):
    """How long Tidefall takes of DuckDB's time, whether rates or times were measured."""
    if not ours or not theirs or "error" in ours or "error" in theirs:
        return ""
    share = ours["median"] / theirs["median"]
    return f"{1 / share if ours['unit'] == 'rows/s' else share:.2g}"

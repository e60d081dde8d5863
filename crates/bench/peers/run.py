"""Measures Tidefall beside other databases and writes the tables of docs/benchmarks.md.

    python run.py --binary TIDEFALL --engine TIDEFALL_BENCH [--data DIR] [--only STEP] [--match TEXT] [--out FILE]

Every command prints lines of JSON, which are kept in --results; one that is run again replaces its
lines. A part of the page is written anew when all commands of its steps have been measured. `cargo xtask bench` builds both programs and calls this.
"""

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import cliff_report
import query_report
import records_report
import sustained_report

# Where Tidefall's readings lie, and how many days of them there are.
MODELS = {"long": 366, "mixed": 366, "short": 30, "kv": 1}
HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PLOT = REPOSITORY / "docs" / "benchmarks.svg"
SUSTAINED_PLOT = REPOSITORY / "docs" / "sustained.svg"
# Outside of the repository: figures, and what happened in each second of a load.
KEPT = pathlib.Path.home() / ".cache" / "tidefall"
# Loads that go on: sensors, writers, and the part of rows that is late.
SUSTAINED = [(sensors, writers, late) for sensors in (1_000, 100_000) for late in (0.0, 0.05) for writers in (1, 4)]
# Records of a load, and threads. Others by hand: `records.py --rows 100000000 --threads 1` takes many minutes a system.
RECORDS = [(10_000_000, 2)]
# The one that the others take, too, and that is drawn.
SUSTAINED_BESIDE = (1_000, 1, 0.05)


def steps(options):
    """The commands of each step, all of which measure the same thing in several systems."""
    def driver(name, *args):
        return [sys.executable, str(HERE / name), *args]

    engine = lambda *args: [options.engine, *args]
    data = ["--data", options.data] if options.data else []
    binary = ["--binary", options.binary]
    has_influx = shutil.which("influxd") and shutil.which("wrk")
    has_questdb = shutil.which("mvn")
    servers = [*(["influxdb"] if has_influx else []), *(["questdb"] if has_questdb else [])]
    sustained = lambda command, system, sensors, writers, late: [
        *command, "--sensors", str(sensors), "--writers", str(writers), "--late", str(late), "--seconds", str(options.seconds),
        "--timeline", str(sustained_report.timeline_of(KEPT, system, sensors, writers, late)),
    ]
    queries = lambda system, days, model="long": driver("queries.py", "--both", "--system", system, "--days", str(days), "--model", model)
    return {
        "load": [
            engine("load", "--days", "14", "--runs", "5"),
            engine("load-columns", "--days", "14", "--runs", "5"),
            *[driver("load.py", "--only", system, "--days", "14", "--runs", "3", *(binary if system == "tidefall" else [])) for system in ("tidefall", "duckdb", "chdb", "arcticdb", "parquet")],
        ],
        "read": [engine("read", "--days", "365", "--sensors", "100")],
        "log": [engine("log", "--runs", "5")],
        "memory": [engine("memory", "--days", "150", "--memory", memory) for memory in ("128", "512")],
        "http": [driver("http_write.py", "--system", system, *(binary if system == "tidefall" else [])) for system in ("influxdb", "tidefall")] if has_influx else [],
        "sizes": [
            driver("sizes.py", "--days", "7", *data, *binary),
            *([driver("influx_sizes.py", "--days", "7", *data)] if has_influx else []),
        ],
        "cascade": [[options.binary, "bench", "cascade", "--json"]],
        "queries": [
            *(queries("tidefall", days, model) for model, days in MODELS.items()),
            *(queries(peer, days) for days in sorted(set(MODELS.values()), reverse=True) for peer in ("duckdb", "chdb", "arcticdb")),
        ],
        "cliffs": [driver("cliffs.py")],
        "sustained": [
            *(sustained(engine("sustained"), "tidefall", *load) for load in SUSTAINED),
            *(sustained(driver("sustained.py", "--system", system), system, *SUSTAINED_BESIDE) for system in ("duckdb", "chdb", *(["questdb"] if has_questdb else []))),
        ],
        "records": [
            driver("records.py", "--system", system, "--workload", workload, "--rows", str(rows), "--threads", str(threads), *data)
            for workload in (["taxi", "ghcn"] if options.data else ["taxi"])
            for rows, threads in RECORDS
            for system in ("duckdb", "duckdb-sorted", "chdb", "tidefall")
        ],
        # Servers take minutes to load and seconds to start: a year alone, and fewer cold starts.
        "servers": [[*queries(server, max(MODELS.values())), "--cold-instances", "3"] for server in servers],
    }


def run(command):
    """The lines that a command prints; nothing when it fails."""
    print("$", *command, file=sys.stderr)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("{"):
                print(line, end="", file=sys.stderr)
                lines.append(json.loads(line))
    if process.returncode:
        print(f"{name_of(command)} ended with {process.returncode}: it keeps its earlier figures", file=sys.stderr)
        return None
    return lines


def name_of(command):
    """A command without the folders of this machine."""
    return " ".join(pathlib.Path(word).name for word in map(str, command) if word != sys.executable)


def number(value):
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def is_ours(line):
    return line["system"] == "Tidefall"


def queries_part(results):
    queries = [line for line in results if line["bench"] == "query"]
    loads = [line for line in results if line["bench"] == "load for queries"]
    query_report.plot(queries, PLOT)
    yield f"![the twelve queries]({PLOT.name})\n"
    yield from query_report.tables(queries, loads)


def sustained_part(results):
    timelines = {title: sustained_report.timeline_of(KEPT, system, *SUSTAINED_BESIDE) for title, system in (("Tidefall", "tidefall"), ("DuckDB", "duckdb"), ("ClickHouse (chdb)", "chdb"), ("QuestDB", "questdb"))}
    sensors, writers, late = SUSTAINED_BESIDE
    sustained_report.plot(timelines, f"{sensors:,} sensors, {writers} writer, {late:.0%} of the rows late by up to a week", SUSTAINED_PLOT)
    yield f"![load that goes on]({SUSTAINED_PLOT.name})\n"
    yield from sustained_report.tables(results)


def other_parts(results):
    """Markdown: a table for each benchmark with several systems, one for all that have only ours."""
    benches = {}
    for line in results:
        key = line["bench"] + (f", {line['clients']} clients" if "clients" in line else "")
        benches.setdefault(key, []).append(line)
    sizes = {name: lines for name, lines in benches.items() if name.startswith("bytes per reading: ")}
    alone = {name: lines for name, lines in benches.items() if name not in sizes and all(map(is_ours, lines))}
    for name, lines in benches.items():
        if name not in sizes and name not in alone:
            yield from comparison(name, lines)
    if alone:
        yield "### Tidefall alone\n"
        yield "| benchmark | median | unit | spread | settings |\n|---|---|---|---|---|"
        for name, lines in alone.items():
            for line in lines:
                more = ", ".join(f"{key.replace('_', ' ')} {number(line[key])}" for key in ("after_import_mib", "rows_per_s", "median_wait_ms", "p99_wait_ms", "of_the_workload_mib") if key in line)
                yield f"| {name} | {number(line['median'])} | {line['unit']} | {line['spread']:.0%} | {line['settings']}{'; ' + more if more else ''} |"
        yield ""
    if sizes:
        yield from size_table(sizes)


def comparison(name, lines):
    yield f"### {name[0].upper()}{name[1:]}\n"
    yield "| system | median | unit | spread | Tidefall is | settings |\n|---|---|---|---|---|---|"
    ours = next((line["median"] for line in lines if is_ours(line)), None)
    for line in sorted(lines, key=lambda line: -line["median"]):
        ratio = f"{ours / line['median']:.2g} times" if ours and not is_ours(line) else ""
        extra = f"; 99th percentile {line['p99_ms']} ms" if "p99_ms" in line else ""
        extra += f"; {line['bytes_per_reading']:.2f} bytes per reading" if "bytes_per_reading" in line else ""
        yield f"| {line['system']} {line['version']} | {number(line['median'])} | {line['unit']} | {line['spread']:.0%} | {ratio} | {line['settings']}{extra} |"
    yield ""


def size_table(sizes):
    yield "### Bytes per reading\n"
    systems = list(dict.fromkeys(line["system"] for lines in sizes.values() for line in lines))
    yield "| data | " + " | ".join(systems) + " |\n|---" + "|---" * len(systems) + "|"
    for name, lines in sizes.items():
        found = {line["system"]: line["median"] for line in lines}
        least = min(found.values())
        cells = [f"**{found[s]:.3f}**" if found.get(s) == least else f"{found[s]:.3f}" if s in found else "" for s in systems]
        yield f"| {name.split(': ')[1]} | " + " | ".join(cells) + " |"
    yield ""


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    cores = len([line for line in open("/proc/cpuinfo") if line.startswith("processor")])
    return f"{cores} cores of {cpu}, {memory / 2**20:.0f} GiB, Linux {'.'.join(platform.release().split('.')[:2])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--data", help="folder of the full data sets; without it the carried ones are measured")
    parser.add_argument("--seconds", type=int, default=600, help="how long each load of the step sustained goes on")
    parser.add_argument("--only", help="one step, or several with commas between them; none writes the page alone")
    parser.add_argument("--match", default="", help="only commands with this text in them")
    parser.add_argument("--results", default=str(KEPT / "bench.jsonl"))
    parser.add_argument("--out", default=str(REPOSITORY / "docs" / "benchmarks.md"))
    options = parser.parse_args()
    results = pathlib.Path(options.results)
    kept = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    all_steps = list(steps(options))
    wanted = [] if options.only == "none" else options.only.split(",") if options.only else all_steps
    all_well = True
    for step in wanted:
        for command in steps(options)[step]:
            name = name_of(command)
            if options.match not in name:
                continue
            lines = run(command)
            if lines is None:
                all_well = False
                continue
            kept = [line for line in kept if line.get("command") != name] + [dict(line, command=name) for line in lines]
            results.write_text("".join(json.dumps(line) + "\n" for line in kept))
        # After every step, as all of them take more than an hour.
        write_page(kept, pathlib.Path(options.out), steps(options))
    if not wanted:
        write_page(kept, pathlib.Path(options.out), steps(options))
    return 0 if all_well else 1


def write_page(results, page, commands):
    """Writes each part of the page of which all commands have been measured; the others keep their text."""
    known = page.read_text() if page.exists() else ""
    earlier = {mark: text for mark, text in re.findall(r"<!-- (\w+) -->\n(.*?)(?=<!-- |\Z)", known, re.DOTALL)}
    by_command = {}
    for line in results:
        by_command.setdefault(line.get("command"), []).append(line)
    page.write_text((HERE / "benchmarks.head.md").read_text() + "\n")
    with page.open("a") as out:
        for mark, (tables, steps_of) in PARTS.items():
            needed = [name_of(command) for step in steps_of for command in commands[step]]
            text = earlier.get(mark, "")
            if all(name in by_command for name in needed):
                measured = [line for name in needed for line in by_command[name]]
                text = "\n".join([f"Machine: {machine()}.\n", *tables(measured), ""])
            out.write(f"<!-- {mark} -->\n{text}")


# The parts of the page, and the steps that each of them needs.
PARTS = {
    "queries": (queries_part, ("queries", "servers")),
    "cliffs": (cliff_report.tables, ("cliffs",)),
    "sustained": (sustained_part, ("sustained",)),
    "records": (records_report.tables, ("records",)),
    "others": (other_parts, ("load", "read", "log", "memory", "http", "sizes", "cascade")),
}

if __name__ == "__main__":
    sys.exit(main())

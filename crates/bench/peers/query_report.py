"""Tables and plots of what queries.py measured."""

import math

import common

TITLES = {
    "q1": "one sensor, a day", "q2": "one sensor, 30 days", "q3": "one sensor, a year", "q4": "10 neighbours, a day",
    "q5": "10 neighbours, 30 days", "q6": "10 neighbours, a year", "q7": "10 of all sensors, a year", "q8": "all sensors at a minute",
    "q9": "hourly means of a year, one sensor", "q10": "hourly means of a year, 20 sensors", "q11": "least value of a day and its time",
    "q12": "outliers of a year",
}


def name_of(line):
    return f"{line['system']}, {line['model']}" if line["model"] else line["system"]


def groups(lines):
    """The lines of each workload and state of the caches."""
    found = {}
    for line in lines:
        found.setdefault((line["sensors"], line["days"], line["caches"]), []).append(line)
    return dict(sorted(found.items(), key=lambda group: (-group[0][1], group[0][2] != "warm")))


def medians(lines):
    """System -> query -> (median, spread), Tidefall's models first."""
    found = {}
    for line in sorted(lines, key=lambda line: line["model"] is None):
        found.setdefault(name_of(line), {})[line["query"]] = line["median"], line["spread"]
    return found


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def tables(lines, loads):
    """Markdown: a table for each workload, with a ratio to the best of the others."""
    yield "### Twelve queries from Python\n"
    yield "Milliseconds until the answer is a data frame, dictionary or triplet, median of ten instances (spread between their quartiles).\n"
    for (sensors, days, caches), group in groups(lines).items():
        found = medians(group)
        ours = [name for name in found if name.startswith("Tidefall")]
        peers = [name for name in found if name not in ours]
        queries = [query for query in TITLES if any(query in found[name] for name in ours)]
        if not ours or not peers:
            continue
        yield f"#### {sensors} sensors, {days} days, {caches}\n"
        yield "| | | " + " | ".join(found) + " | best other / Tidefall |\n|---|---" + "|---:" * (len(found) + 1) + "|"
        ratios = []
        for query in queries:
            cells = [cell(found[name].get(query)) for name in found]
            best_peer = min((found[name][query][0] for name in peers if query in found[name]), default=float("nan"))
            ratios.append([best_peer / found[name][query][0] if query in found[name] else float("nan") for name in ours])
            yield f"| {query.upper()} | {TITLES[query]} | " + " | ".join(cells) + " | " + " / ".join(f"{ratio:.1f}" for ratio in ratios[-1]) + " |"
        means = " / ".join(f"**{geometric_mean(column):.1f}**" for column in zip(*ratios))
        slower = [f"{geometric_mean([found[name][query][0] / found[ours[0]][query][0] for query in queries if query in found[name]]):.3g} x" for name in peers]
        yield "| | geometric mean | " + " | ".join([""] * len(ours) + slower) + f" | {means} |\n"
    if loads:
        yield "| loaded for the queries | rows | rows/s | bytes per reading | settings |\n|---|---:|---:|---:|---|"
        for line in loads:
            rows = line["sensors"] * line["days"] * common.MINUTES_PER_DAY
            yield f"| {name_of(line)} {line['version']} | {rows / 1e6:.2f} M | {line['median'] / 1e6:.2f} M | {line['bytes_per_reading']:.3f} | {line['settings']} |"
        yield ""


def cell(found):
    return "" if found is None else f"{found[0]:.3g} ({found[1]:.0%})"


def plot(lines, path):
    """Draws the first workload, warm: a group of bars for each query."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams["svg.hashsalt"] = "tidefall"  # the same figures make the same file
    group = next((group for (_, _, caches), group in groups(lines).items() if caches == "warm"), None)
    if not group:
        return
    found = medians(group)
    queries = [query for query in TITLES if any(query in of for of in found.values())]
    figure, axes = plt.subplots(figsize=(11, 5), layout="constrained")
    width = 0.84 / len(found)
    for place, (name, of) in enumerate(found.items()):
        bars = [(index + place * width, of[query][0]) for index, query in enumerate(queries) if query in of]
        axes.bar([x for x, _ in bars], [y for _, y in bars], width, label=name)
    axes.set_yscale("log")
    axes.set_xticks([index + 0.42 - width / 2 for index in range(len(queries))], [query.upper() for query in queries])
    axes.set_ylabel("ms, less is better")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(ncols=3, fontsize=8)
    first = group[0]
    axes.set_title(f"Twelve queries from Python, {first['sensors']} sensors, {first['days']} days, {first['caches']}")
    figure.savefig(path, metadata={"Date": None})

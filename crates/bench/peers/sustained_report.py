"""The tables and the plot of the load that goes on for minutes."""

import csv
import pathlib

PANELS = [
    ("rows_per_s", "readings/s", 1e-6, "million readings/s"),
    ("wait_p99_ms", "99th percentile of waits", 1.0, "ms"),
    ("run_files", "run files", 1.0, "files"),
    ("count_max_ms", "count and max of everything", 1.0, "ms"),
]


def timeline_of(folder, system, sensors, writers, late):
    """Where the figures of each second of a run are."""
    return pathlib.Path(folder) / f"sustained-{system}-{sensors}-{writers}-{late}.csv"


def smooth(values, width=10):
    """Means of so many seconds: single ones say little."""
    return [sum(values[at:at + width]) / len(values[at:at + width]) for at in range(0, len(values), width)]


def plot(timelines, title, path):
    """Draws what happened over the minutes: a panel for each figure, a line for each run."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams["svg.hashsalt"] = "tidefall"  # the same figures make the same file
    runs = {}
    for name, file in timelines.items():
        if pathlib.Path(file).exists():
            with open(file) as lines:
                runs[name] = list(csv.DictReader(lines))
    figure, panels = plt.subplots(2, 2, figsize=(11, 7), layout="constrained", sharex=True)
    for axes, (column, what, factor, unit) in zip(panels.flat, PANELS):
        for name, rows in runs.items():
            at = smooth([float(row["second"]) for row in rows])
            axes.plot(at, smooth([float(row[column]) * factor for row in rows]), label=name, linewidth=1.2)
        axes.set_title(what, fontsize=10)
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in panels[1]:
        axes.set_xlabel("seconds")
    panels[0][0].legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, metadata={"Date": None})


def tables(lines):
    """Markdown: a line for each run."""
    runs = {}
    for line in lines:
        runs.setdefault((line["settings"], line["system"], line["version"]), {})[line["bench"].removeprefix("sustained load, ")] = line
    yield "### Load that goes on\n"
    yield (
        "Writers send pieces of 100,000 readings as fast as they are taken, each on disk before the next, and a reader asks once a second (`tidefall-bench sustained`, "
        "`sustained.py`). The part of late rows is late by up to a week. Waits and times of questions in milliseconds, median / most. Of the "
        "disk what was taken at most, and how many times the bytes of all live objects that was at most, where the system tells: in the first second that is the log.\n"
    )
    yield (
        "Before run files were laid together while memory fills (6a6a011, on a machine twice as fast): 15 M readings/s of 1,000 sensors in order for 45 s, 360 run "
        "files after that and 8 more each second, and 14 to 52 s for the count and the greatest value of 750 M rows.\n"
    )
    yield "| system | load | readings/s | last to first minute | wait p50 / p99 / most | count, max | last 5 minutes of a sensor | run files | disk, GiB | memory, MiB |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for (settings, system, version), of in runs.items():
        taken, wait, memory = of["readings taken"], of["wait of a write"], of["resident memory"]
        behind = of.get("rows acknowledged that a question does not see")
        if behind:
            settings += f" (up to {behind['median'] / 1e6:.1f} million rows less than were acknowledged)"
        live = of.get("bytes on the disk by bytes of live objects")
        disk = f"{live['most_mib'] / 1024:.2f} ({live['median']:.2f})" if live else f"{of['bytes on the disk']['median'] / 1024:.2f}"
        both = lambda line: f"{line['median']:.3g} / {line['most']:.3g}"
        yield (
            f"| {system} {version} | {settings} | {taken['median'] / 1e6:.2f} M | {taken['ratio']:.0%} | {wait['median']:.3g} / {wait['p99']:.3g} / {wait['most']:.4g} | "
            f"{both(of['count and max of everything'])} | {both(of['last five minutes of a sensor'])} | {of['run files']['median']:.0f} | {disk} | {memory['median']:.0f} |"
        )
    yield ""

"""Tables of what records.py has measured."""


def tables(results):
    keys = dict.fromkeys((line["bench"], line["rows"], line["threads"]) for line in results)
    for bench, rows, threads in keys:
        lines = [line for line in results if (line["bench"], line["rows"], line["threads"]) == (bench, rows, threads)]
        yield from table(bench.removeprefix("records: "), rows, threads, lines)


def table(workload, rows, threads, lines):
    ours = next((line for line in lines if line["system"] == "Tidefall"), None)
    yield f"### Records: {workload}, {rows / 1e6:g} million, {threads} thread{'s' if threads > 1 else ''}\n"
    yield "Milliseconds: of the paper's queries the geometric mean, of boxes at random (one record to half of all) too, beside their median, 99th percentile and most. Of peers how many times as long they take.\n"
    yield "| system | records/s | in order | bytes each | queries | boxes | p50 / p99 / most | settings |\n|---|---:|---:|---:|---:|---:|---:|---|"
    for line in sorted(lines, key=lambda line: line["boxes_geometric_mean_ms"]):
        more = lambda figure: f" ({line[figure] / ours[figure]:.2g} times)" if ours and line is not ours else ""
        yield (
            f"| {line['system']} {line['version']} | {line['arrived_rows_per_s'] / 1e6:.2f} M | {line['ordered_rows_per_s'] / 1e6:.2f} M | {line['bytes_per_record']:.1f} | "
            f"{line['median']:.3g}{more('median')} | {line['boxes_geometric_mean_ms']:.3g}{more('boxes_geometric_mean_ms')} | "
            f"{line['boxes_p50_ms']:.3g} / {line['boxes_p99_ms']:.3g} / {line['boxes_most_ms']:.3g} | {line['settings']} |"
        )
    yield ""
    names = list(lines[0]["queries_ms"])
    yield "| system | " + " | ".join(names) + " |\n|---" + "|---:" * len(names) + "|"
    for line in lines:
        yield f"| {line['system']}{', sorted' if ' sorted by ' in line['settings'] else ''} | " + " | ".join(f"{line['queries_ms'][name]:.2f}" for name in names) + " |"
    yield ""

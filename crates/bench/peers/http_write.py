"""Acknowledged, fsynced single readings over HTTP: InfluxDB or Tidefall under the same load generator.

    python http_write.py --system influxdb [--clients 1,10,100] [--seconds 5] [--runs 5]
    python http_write.py --system tidefall --binary PATH
    python http_write.py --url http://127.0.0.1:PORT   # a server that runs already

Needs Debian's `wrk` and `influxdb`. InfluxDB keeps its default of an fsync for every write
(wal-fsync-delay = "0s"), Tidefall acknowledges from its log. Afterwards the readings are counted: fewer
than were acknowledged is an error. Prints readings per second, a line of JSON for each number of clients.
"""

import argparse
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import common

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS_MAX = 30

INFLUX_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  wal-fsync-delay = "0s"
  index-version = "{index}"
  query-log-enabled = false
  max-series-per-database = 0
  max-values-per-tag = 0
  cache-snapshot-write-cold-duration = "{cold}"
  compact-full-write-cold-duration = "{cold}"
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
  max-body-size = 0
[monitor]
  store-enabled = false
"""

QUESTDB = "9.3.4"
QUESTDB_CONFIG = "http.bind.to=127.0.0.1:{port}\nhttp.min.enabled=false\npg.enabled=false\nline.tcp.enabled=false\ntelemetry.enabled=false\n"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(url, data=None, headers=None):
    with urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers or {}), timeout=60) as answer:
        return answer.read().decode()


class Server:
    """A server of the peer (or Tidefall) in a folder of its own, on free ports of this machine."""

    def __init__(self, command, port, log):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                get(self.url + "/ping")
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.stop()
                    raise SystemExit(f"{command[0]} did not start; see {log.name}") from None
                time.sleep(0.1)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)


def start_influxdb(folder, index="inmem", cold="10m", shard="7d"):
    port, rpc = free_port(), free_port()
    config = pathlib.Path(folder) / "influxdb.conf"
    config.write_text(INFLUX_CONFIG.format(folder=folder, port=port, rpc=rpc, index=index, cold=cold))
    server = Server(["influxd", "-config", str(config)], port, open(f"{folder}/log", "w"))
    query = urllib.parse.urlencode({"q": f"CREATE DATABASE bench WITH DURATION INF SHARD DURATION {shard}"})
    get(f"{server.url}/query?{query}", data=b"")
    return server


def start_questdb(folder, more=""):
    """QuestDB, whose jar comes from Maven."""
    jar = pathlib.Path.home() / f".m2/repository/org/questdb/questdb/{QUESTDB}/questdb-{QUESTDB}.jar"
    if not jar.exists():
        fetch = ["mvn", "-q", "dependency:get", "-Dtransitive=false", f"-Dartifact=org.questdb:questdb:{QUESTDB}"]
        subprocess.run(fetch, check=True, stdout=sys.stderr)  # Standard output is for figures.
    port = free_port()
    conf = pathlib.Path(folder) / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "server.conf").write_text(QUESTDB_CONFIG.format(port=port) + more)
    command = ["java", "-p", str(jar), "-m", "io.questdb/io.questdb.ServerMain", "-d", str(folder)]
    return Server(command, port, open(f"{folder}/log", "w"))


def start_tidefall(folder, binary):
    port = free_port()
    return Server([binary, "serve", "--db", f"{folder}/db", "--listen", f"127.0.0.1:{port}"], port, open(f"{folder}/log", "w"))


def counted(system, url):
    if system == "influxdb":
        query = urllib.parse.urlencode({"db": "bench", "q": "SELECT count(value) FROM readings"})
        return json.loads(get(f"{url}/query?{query}"))["results"][0]["series"][0]["values"][0][1]
    answer = get(f"{url}/api/v1/sql", b"SELECT count(*) AS n FROM readings", {"Accept": "text/csv"})
    return int(answer.split()[-1])


def generate(url, clients, seconds, base):
    """Runs wrk: writes per second, answered requests and 99th percentile in milliseconds."""
    threads = min(2, clients)
    command = ["wrk", "-t", str(threads), "-c", str(clients), "-d", f"{seconds}s", "--latency", "-s", str(HERE / "write.lua"), f"{url}/write?db=bench", "--", str(base)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text:
        raise SystemExit(f"the server refused writes:\n{text}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    done = int(re.search(r"(\d+) requests in", text).group(1))
    amount, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", text).groups()
    return rate, done, float(amount) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def measure(system, url, version, options):
    acknowledged, base = 0, 946_684_800
    for clients in map(int, options.clients.split(",")):
        rates, slow = [], []
        for run in range(options.runs + 1):
            rate, done, p99_ms = generate(url, clients, options.seconds, base)
            acknowledged += done
            base += 10_000_000  # the next run's times lie behind this one's
            if run:
                rates.append(rate)
                slow.append(p99_ms)
        settings = f"{clients} clients, 1 reading a request, fsync before the answer, wrk"
        common.report("single readings over HTTP", {"influxdb": "InfluxDB", "tidefall": "Tidefall"}[system], version, settings, rates, "readings/s", clients=clients, p99_ms=round(sorted(slow)[len(slow) // 2], 3))
    stored = counted(system, url)
    if stored < acknowledged:
        print(f"{system}: {acknowledged} readings acknowledged, {stored} stored", file=sys.stderr)
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=["influxdb", "tidefall"], default="influxdb")
    parser.add_argument("--binary", default="tidefall")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--clients", default="1,10,100")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp/tidefall-peers-http", help="scratch folder; on a disk, not in memory")
    options = parser.parse_args()
    if options.url:
        measure(options.system, options.url, "running", options)
        return
    shutil.rmtree(options.work, ignore_errors=True)
    pathlib.Path(options.work).mkdir(parents=True)
    if options.system == "influxdb":
        version = subprocess.run(["influxd", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
        server = start_influxdb(options.work)
    else:
        version = subprocess.run([options.binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
        server = start_tidefall(options.work, options.binary)
    try:
        measure(options.system, server.url, version, options)
    finally:
        server.stop()


if __name__ == "__main__":
    main()

"""A server in a process of its own."""

import re
import subprocess
import sys

import tidefall


class Served:
    """A server over a database, and its client."""

    def __init__(self, folder, *options):
        command = [sys.executable, "-m", "tidefall", "serve", "--db", folder, "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                break
        self.address = f"http://127.0.0.1:{found.group(1)}"
        self.client = tidefall.connect(self.address)

    def stop(self):
        self.client.close()
        self.process.terminate()
        self.process.communicate(timeout=60)

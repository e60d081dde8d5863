"""The shell on a terminal, beside the process that writes its database."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import tidefall

PROMPT = "tidefall> "
# Colours, moves of the cursor, and what else is not text.
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Shell:
    """A shell that somebody types into."""

    def __init__(self, folder):
        self.terminal, inner = pty.openpty()
        command = [sys.executable, "-m", "tidefall", "shell", "--db", str(folder)]
        environment = {**os.environ, "TERM": "xterm", "HOME": str(folder.parent)}
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True)
        os.close(inner)
        self.greeting = self.read_until(PROMPT)

    def read_until(self, end):
        text, deadline = "", time.monotonic() + 60
        while not CONTROLS.sub("", text).endswith(end):
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {end!r} in: {text!r}"
            text += os.read(self.terminal, 65536).decode()
        return CONTROLS.sub("", text)

    def type(self, line):
        """What the shell says to a line."""
        os.write(self.terminal, line.encode())
        # With its end in one piece it would be taken as pasted.
        self.read_until(line[-1])
        os.write(self.terminal, b"\r")
        return self.read_until(PROMPT)

    def quit(self):
        os.write(self.terminal, b"\x04")
        assert self.process.wait(timeout=60) == 0
        os.close(self.terminal)


def plant(values):
    return {"time": list(range(len(values))), "value": values}


def test_a_shell_shows_what_its_writer_writes_meanwhile(tmp_path):
    folder = tmp_path / "db"
    with tidefall.open(folder) as db:
        db.write("plant", plant([1.5]), time="time")
        shell = Shell(folder)
        count = "SELECT sum(value) AS s FROM plant;"
        assert "| 1.5 |" in shell.type(count)
        db.write("plant", plant([1.5, 2.5]), time="time")
        db.write("yard", plant([1.5]), time="time")
        assert "| 4.0 |" in shell.type(count)
        assert "yard" in shell.type(".tables")
        assert ".schema [TABLE]" in shell.type(".help")
        db.sql("CREATE TABLE late (time TIMESTAMP, depth DOUBLE)")
        assert "depth" in shell.type(".schema")
    # Another database takes its place: what was shown is shown still, and that is said.
    shutil.move(folder, tmp_path / "aside")
    with tidefall.open(folder) as db:
        db.write("other", plant([7.5]), time="time")
        said = shell.type(count)
        assert "| 4.0 |" in said and "open it again" in said
    shell.quit()

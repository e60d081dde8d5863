"""What `pip install .` leaves behind: the package, its command, and the README that describes them."""

import pathlib
import re
import subprocess
import sys

import tidefall

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_examples(name):
    """Runs the examples of a page, one after the other; what they leave behind."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    left = {}
    for example in examples:
        exec(compile(example, name, "exec"), left)
    return left


def test_readme_examples_run_as_they_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples("README.md")
    with tidefall.open("plant.tide") as db:
        assert db.table("plant").latest().to_dict() == {"north": 21.0, "south": 19.5}


def test_the_examples_of_the_page_on_python_run_as_they_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    left = run_examples("docs/python.md")
    assert capsys.readouterr().out.split("\n")[:2] == ["3 0", "5"]
    assert left["plant"].at("2024-03-01 12:00").to_dict() == {"north": 20.5, "south": 19.0}
    assert left["db"].table("pumps").fields == {"pressure": "DOUBLE", "calibrated": "TIMESTAMP"}
    left["db"].close()


def command(*line, folder=None):
    return subprocess.run([sys.executable, "-m", "tidefall", *line], capture_output=True, text=True, cwd=folder)


def test_the_command_comes_with_the_package(tmp_path):
    assert command("--version").stdout.split() == ["tidefall", tidefall.__version__]
    with tidefall.open(str(tmp_path / "db")) as db:
        db.write("plant", {"time": [0, 1_000_000_000], "value": [1.5, 2.5]}, time="time")
    answer = command("query", "--db", str(tmp_path / "db"), "--format", "csv", "SELECT sum(value) AS s FROM plant")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "s\n4.0\n", "")
    missing = command("query", "--db", str(tmp_path / "db"), "SELECT * FROM nothing")
    assert missing.returncode == 1 and "nothing" in missing.stderr
    assert command("no-such-command").returncode == 2


def test_the_demo_needs_nothing_but_the_package(tmp_path):
    answer = command("demo", folder=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "26,115 hourly readings" in answer.stdout

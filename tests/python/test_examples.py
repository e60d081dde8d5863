"""The examples run as they are, and draw what they say."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# What they print, and the size of their pictures.
EXPECTED = {
    "weather.py": (["rows written: 26115", "hottest day: 2013-07-19", "1048.36058"], (320, 720)),
    "taxi.py": (["records written: 10000", "in Midtown: 2519", "nearest to Times Square"], (720, 720)),
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example(name, tmp_path):
    said, shape = EXPECTED[name]
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(EXAMPLES / name), str(tmp_path / "db"), str(picture)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "MPLBACKEND": "Agg"}).stdout
    for one in said:
        assert one in text, text
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[:2] == shape
    # White paper, and lines of several colours.
    assert (pixels[:, :, :3] == 1).all(axis=2).mean() > 0.3
    assert len({tuple(pixel) for pixel in (pixels[:, :, :3] * 7).astype(int).reshape(-1, 3)}) > 8

"""The examples run as they are, and draw what they say."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example(name, tmp_path):
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(EXAMPLES / name), str(tmp_path / "db"), str(picture)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "MPLBACKEND": "Agg"}).stdout
    assert "rows written: 26115" in text and "hottest day: 2013-07-19" in text
    assert "1048.36058" in text, "the outlier was not found"
    import matplotlib.image

    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[:2] == (320, 720)
    # White paper, and lines of several colours.
    assert (pixels[:, :, :3] == 1).all(axis=2).mean() > 0.5
    assert len({tuple(pixel) for pixel in (pixels[:, :, :3] * 7).astype(int).reshape(-1, 3)}) > 8

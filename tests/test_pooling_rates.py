"""The recipe that compares poolings, at toy size."""

import pathlib
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.once

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"


def test_prints_a_line_for_each_pooling_and_rate(monkeypatch, capsys):
    """E19: each pooling at each rate; a rate of 0 stays at a tenth."""
    monkeypatch.syspath_prepend(str(RECIPES))
    for name in ("data_scale", "pooling_rates"):
        sys.modules.pop(name, None)
    import pooling_rates

    labels = np.arange(120, dtype="int32") % 10
    images = (
        np.full((120, 28, 28, 3), 25, "uint8") * labels[:, None, None, None]
    )
    images = images.astype("uint8")
    monkeypatch.setattr(pooling_rates, "HELD_OUT", 40)
    monkeypatch.setattr(pooling_rates, "load", lambda *_: (images, labels))
    pooling_rates.main(
        ["--steps", "10", "--seeds", "1", "--rates", "0", "3e-3"]
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["token", "token", "gap", "gap"]
    right = [float(line[2]) for line in lines]
    assert right[0] == right[2] == 10
    assert min(right[1], right[3]) > 12

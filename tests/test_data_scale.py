"""The comparison of ViT, hybrid and ResNet, at toy size."""

import gzip
import pathlib
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.once

RECIPES = pathlib.Path(__file__).parent.parent / "recipes"


def write_idx(path, array):
    head = bytes([0, 0, 8, array.ndim])
    sizes = np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(head + sizes + array.tobytes()))


@pytest.fixture
def folder(tmp_path):
    """Files as Fashion-MNIST has them, of 40 and 10 images."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 28, 28), dtype="uint8")
        write_idx(tmp_path / f"{split}-images-idx3-ubyte.gz", images)
        labels = (np.arange(count) % 10).astype("uint8")
        write_idx(tmp_path / f"{split}-labels-idx1-ubyte.gz", labels)
    return tmp_path


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    sys.modules.pop("data_scale", None)
    import data_scale

    return data_scale


def test_same_cost(recipe):
    """Within 7 % of their mean, or the comparison is none."""
    from keras_vit import count_macs

    macs = [count_macs(config) for config, _ in recipe.MODELS.values()]
    assert max(macs) / np.mean(macs) < 1.07
    assert min(macs) / np.mean(macs) > 0.92


def test_subsets(recipe):
    """Every class alike; a larger part holds the smaller one."""
    labels = np.repeat(np.arange(10), 50)
    small, large = (recipe.subset(labels, f, seed=1) for f in (0.1, 0.5))
    assert (np.bincount(labels[small]) == 5).all()
    assert set(small) < set(large)
    assert set(recipe.subset(labels, 0.1, seed=2)) != set(small)


def test_runs_and_goes_on(recipe, folder, tmp_path, capsys):
    """A finished run is not made again; the plot is drawn from the lines."""
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--steps", "2"]
    arguments += ["--fractions", "0.5", "--seeds", "1", "--batch-size", "8"]
    recipe.main([*arguments, "--models", "ViT"])
    assert len(recipe.read_rows(out / "results.csv")) == 1
    recipe.main([*arguments, "--models", "ViT", "ResNet"])
    rows = recipe.read_rows(out / "results.csv")
    assert [row["model"] for row in rows] == ["ViT", "ResNet"]
    assert (out / "data_scale.png").stat().st_size > 10_000
    assert "M, 121,130 weights" in capsys.readouterr().out

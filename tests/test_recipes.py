"""Every recipe from its command line, small."""

import gzip
import pathlib
import runpy
import sys

import numpy as np
import pytest

RECIPE_FILES = pathlib.Path(__file__).parent.parent / "recipes"


def idx_files(root, count=300):
    """The four files of a tiny Fashion-MNIST."""
    rng = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = rng.integers(0, 256, (count, 28, 28), dtype="uint8")
        labels = (np.arange(count) % 10).astype("uint8")
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim])
            sizes = np.array(array.shape, ">u4").tobytes()
            with gzip.open(root / f"{prefix}-{name}-ubyte.gz", "wb") as file:
                file.write(head + sizes + array.tobytes())
    return root


@pytest.mark.once
# Of torch, in Keras' RandAugment.
@pytest.mark.filterwarnings("ignore:.*Tensor.T is deprecated")
@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        (
            "finetune",
            ["--toy", "--steps", "2", "--batch-size", "8"],
            "300 test",
        ),
        ("pretrain", ["--toy", "--steps", "2", "--every", "1"], "300 images"),
        (
            "pretrain",
            ["--toy", "--augreg", "--steps", "1", "--every", "1"],
            "of 300",
        ),
        (
            "mae",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"],
            "loss",
        ),
        (
            "masked_patches",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"],
            "commonest",
        ),
        (
            "distill",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"]
            + ["--seeds", "1"],
            "taught",
        ),
        ("fewshot", [], "20 nearest"),
        ("linear_probe", ["--epochs", "1"], "300 test"),
        (
            "linear_probe",
            ["--epochs", "1", "--optimizer", "lamb", "--features", "norm"],
            "300 test",
        ),
    ],
)
def test_recipe_runs(recipe, words, said, tmp_path, monkeypatch, capsys):
    """E12, E13: each of them, from its command line."""
    words = [f"{recipe}.py", "--data", str(idx_files(tmp_path)), *words]
    if recipe not in ("fewshot", "linear_probe"):
        words += ["--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.syspath_prepend(str(RECIPE_FILES))
    runpy.run_path(str(RECIPE_FILES / f"{recipe}.py"), run_name="__main__")
    assert said in capsys.readouterr().out
    if recipe == "mae":
        assert (tmp_path / "run" / "reconstructions.png").stat().st_size > 5000

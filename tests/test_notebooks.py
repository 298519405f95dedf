"""Every notebook runs from its first cell to its last, without a network.

A cell tagged `install` is for Colab, not run here. One tagged `parameters`
holds what a reader changes, sizes among it; after it the test puts values of
its own, `SMALL`, for small data and the model inside the package. Cells share
their names and run in an empty directory, as in a kernel.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
ONCE = pytest.mark.once
NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
RUN = [
    # Backends differ in `fit`; the rest is seen on the first.
    pytest.param(p, id=p.stem, marks=() if p.stem == "quickstart" else ONCE)
    for p in NOTEBOOKS
]
INLINE = "%matplotlib inline"
EMBEDDED = "vit_nano_fashion_mnist"


def quickstart(folder, _):
    """Twelve pictures of two classes: two of the samples, shifted."""
    rng = np.random.default_rng(0)
    for path in keras_vit.sample_images()[:2]:
        image = np.asarray(Image.open(path))
        (folder / "mine" / path.stem).mkdir(parents=True)
        for i in range(6):
            shifted = np.roll(image, rng.integers(-2, 3, 2), (0, 1))
            name = folder / "mine" / path.stem / f"{i}.png"
            Image.fromarray(shifted).save(name)
    return {
        "FOLDER": folder / "mine",
        "PRESET": EMBEDDED,
        "EPOCHS": 6,
        "BATCH_SIZE": 5,
        "LEARNING_RATE": 1e-3,
    }


def quickstart_shows(names):
    """L01: it has learned, and what it wrote opens as the same model."""
    assert names["first"] == pytest.approx(np.log(2), abs=1e-6)
    assert names["history"].history["loss"][-1] < 0.55
    assert names["again"].labels == ("ankle_boot", "bag")
    x = names["x_test"]
    before, after = (
        names[model].predict(x, verbose=0) for model in ("model", "again")
    )
    np.testing.assert_array_equal(before, after)


def from_hf_or_timm(folder, _):
    """A folder as Hugging Face writes it, of a model with a class token."""
    config = keras_vit.vit_config(
        "nano/4", image_size=(28, 28), depth=2, num_classes=3
    )
    model = keras_vit.ViT(config)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    keras_vit.save_checkpoint(model, folder / "model.safetensors", "hf")
    facts = {
        "model_type": "vit",
        "num_attention_heads": config.num_heads,
        "hidden_act": "gelu",
        "id2label": {"0": "cat", "1": "dog", "2": "cow"},
    }
    (folder / "config.json").write_text(json.dumps(facts))
    return {"SOURCE": str(folder), "COMPARE": False}


def from_hf_or_timm_shows(names):
    assert names["model"].labels == ("cat", "dog", "cow")
    assert set(names["differences"]) == {"timm", "hf", "google", "big_vision"}
    assert max(names["differences"].values()) == 0
    assert "block_0/mlp/dense_1/bias" in names["complaint"]
    assert np.ptp(names["logits"]) > 0.1


def explore_augreg(*_):
    return {"PRESET": EMBEDDED}


def explore_augreg_shows(names):
    assert len(names["measured"]) > 50
    assert all(row[3] <= 40 for row in names["measured"])
    prices = [row[3] for row in names["frontier"]]
    scores = [row[1].top_1 for row in names["frontier"]]
    assert len(scores) > 5
    assert prices == sorted(prices)
    assert scores == sorted(scores)
    assert names["features"].shape == (4, 64)


def tpu_finetune(_, monkeypatch):
    """Forty pictures in the place of CIFAR-10's 60,000."""
    if keras.config.backend() != "jax":
        pytest.skip("JAX is the backend for a TPU")
    images = [np.asarray(Image.open(p)) for p in keras_vit.sample_images()]
    x = np.repeat(np.stack(images)[..., None], 3, -1)
    x = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    train = (np.tile(x, (3, 1, 1, 1)), np.tile(np.arange(10), 3)[:, None])
    test = (x, np.arange(10)[:, None])
    monkeypatch.setattr(
        keras.datasets.cifar10, "load_data", lambda: (train, test)
    )
    return {
        "PRESET": EMBEDDED,
        "IMAGE_SIZE": 28,
        "BATCH_SIZE": 16,
        "STEPS": 6,
        "LEARNING_RATE": 1.0,
    }


def tpu_finetune_shows(names):
    """J07: what a T4 can take is less than what runs out of memory there."""
    assert names["on_training"] > 0.35  # a tenth before
    plan, b16 = names["plan"], keras_vit.vit_config("b/16", image_size=384)
    batch, accumulate = plan(b16, 512, 1, 15 * 2**30, num_bytes=4)
    assert batch * accumulate == 512
    assert batch == 8
    assert plan(b16, 512, 8, 15 * 2**30) == (128, 4)
    assert plan(keras_vit.vit_config("ti/16"), 64, 1, 80 * 2**30) == (64, 1)


def figures(*_):
    return {"PRESET": EMBEDDED, "PHOTOS": keras_vit.sample_images()[:3]}


def figures_shows(names):
    """I08: every figure from one documented call, on one's own pictures."""
    assert names["titles"][0].startswith("Ankle boot 9")
    for name in ("rollout", "relevance"):
        assert names[name].shape == (3, 7, 7)
    assert names["filters"].shape == (28, 4, 4, 3)
    assert names["similarity"].shape == (7, 7, 7, 7)
    assert names["distance"].shape == names["entropy"].shape == (6, 2)
    assert (names["distance"] < 1.3 * names["even"]).all()
    assert (names["entropy"] <= np.log(49) + 1e-5).all()
    for field in names["fields"].values():
        assert field.sum() == pytest.approx(1, abs=1e-4)


# Notebook: what makes its `SMALL` values, and what must hold at its end.
SMALL = {
    "quickstart": (quickstart, quickstart_shows),
    "from_hf_or_timm": (from_hf_or_timm, from_hf_or_timm_shows),
    "explore_augreg": (explore_augreg, explore_augreg_shows),
    "figures": (figures, figures_shows),
    "tpu_finetune": (tpu_finetune, tpu_finetune_shows),
}


def cells_of(path, kind="code"):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def tags_of(cell):
    return cell["metadata"].get("tags", [])


def source_of(cell):
    """Source without the line that lets a kernel draw a figure."""
    return "".join(x for x in cell["source"] if x.strip() != INLINE)


def is_install(cell):
    return "install" in tags_of(cell)


@ONCE
def test_every_notebook_is_run():
    assert set(NAMES) == set(SMALL)


@ONCE
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_stored_without_outputs(path):
    """Nothing of a run is kept: no outputs, counts or names of a machine."""
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    for cell in cells_of(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    assert set(notebook["metadata"]) <= {
        "accelerator",
        "kernelspec",
        "language_info",
    }


@ONCE
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_opens_with_its_cost_and_one_install_cell(path):
    first, second = json.loads(path.read_text("utf-8"))["cells"][:2]
    assert first["cell_type"] == "markdown"
    assert source_of(first).startswith("# ")
    assert "**What it costs.**" in source_of(first)
    assert is_install(second)
    assert "keras-vit-garden" in source_of(second)
    magic = re.compile(r"^\s*[%!]", re.M)
    for cell in cells_of(path):
        assert is_install(cell) == bool(magic.search(source_of(cell)))


@ONCE
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_reads_as_a_page(path):
    """No more than two cells of code follow each other without a word."""
    kinds = [
        cell["cell_type"]
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if not is_install(cell)
    ]
    assert "code code code" not in " ".join(kinds)


def refuse(*_, **__):
    raise OSError("a notebook asked for the network in a test")


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield
    if keras.config.backend() != "tensorflow":
        keras.distribution.set_distribution(None)


def run_cells(path, values):
    """Returns the names that the cells of a notebook leave behind."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(path)):
        if is_install(cell):
            continue
        where = f"{path.name}, code cell {number}"
        exec(compile(source_of(cell), where, "exec"), names)
        if "parameters" in tags_of(cell):
            unknown = set(values) - set(names)
            assert not unknown, f"{where} has no {unknown}"
            names.update(values)
    return names


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("path", RUN)
def test_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    # What a notebook chooses is not for the tests that follow.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    small, shows = SMALL[path.stem]
    values = small(tmp_path, monkeypatch)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    names = run_cells(path, values)
    pyplot.close("all")
    assert names["keras_vit"] is keras_vit
    assert keras.config.floatx() == "float32"
    shows(names)


SHARED = """
import os, pathlib, sys, pytest
sys.path.insert(0, {tests!r})
import test_notebooks as t
small = t.tpu_finetune(None, pytest.MonkeyPatch())
names = t.run_cells(pathlib.Path({notebook!r}), {{**small, "STEPS": 2}})
weights = names["model"].weights
assert len(names["devices"]) == 4, names["devices"]
assert {{w.value.sharding.num_devices for w in weights}} == {{4}}
print("on_test", names["on_test"])
"""


@ONCE
@pytest.mark.skipif(
    keras.config.backend() != "jax", reason="JAX is the backend for a TPU"
)
def test_the_devices_of_a_tpu_share_the_batch(tmp_path):
    """Four devices in a process of its own, with ten pictures to measure on."""
    code = SHARED.format(
        tests=str(ROOT / "tests"),
        notebook=str(ROOT / "colab" / "tpu_finetune.ipynb"),
    )
    flags = (
        f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "on_test" in result.stdout

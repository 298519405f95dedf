"""Every notebook runs from its first cell to its last, without a network.

A cell tagged `install` is for Colab, not run here. One tagged `parameters`
holds what a reader changes, sizes among it; after it the test puts values of
`small_notebooks.py`, for small data and the model inside the package. Cells
share their names and run in an empty directory, as in a kernel.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import keras
import pytest
from small_notebooks import SMALL

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
import small_notebooks, test_notebooks
small = small_notebooks.tpu_finetune(None, pytest.MonkeyPatch())
path = pathlib.Path({notebook!r})
names = test_notebooks.run_cells(path, {{**small, "STEPS": 2}})
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

"""From a name or an address to a model, with a server in the place of theirs.

The files are written in the publishers' layouts, with drawn weights: what is
tested is that these bits arrive, once, and as the catalogue says.
"""

import dataclasses
import logging
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from random_weights import changed
from random_weights import fill
from random_weights import predict
from random_weights import values

import keras_vit
from keras_vit import published
from keras_vit.presets import find_preset

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE / "oracles" / "golden"
TI16 = "vit_ti16"


@pytest.fixture(scope="module")
def source():
    """The model whose weights are served; its head is of 1000 classes."""
    return fill(keras_vit.ViT(find_preset(TI16).config))


@pytest.fixture(scope="module")
def file(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "Ti_16.npz"
    keras_vit.save_checkpoint(source, path, "google")
    return path


def serve(server, name, path):
    address = find_preset(name).source
    server.add_bucket("/" + address.removeprefix("gs://"), path.read_bytes())
    return address


def test_by_name(server, source, file, monkeypatch):
    """A20: the same bits, numerics and labels; once, then offline."""
    address = serve(server, TI16, file)
    model = keras_vit.ViT.from_preset(TI16)
    assert changed(values(source), values(model)) == set()
    assert model.config == find_preset(TI16).config
    assert model.labels[:2] == keras_vit.imagenet_labels()[:2]
    assert len(server.log) == 1
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    for name in (address, "vit_tiny_patch16_224.augreg_in21k_ft_in1k"):
        again = keras_vit.ViT.from_preset(name)
        assert changed(values(source), values(again)) == set()
    assert len(server.log) == 1


def test_another_head_and_size(server, source, file):
    """A15: the rest of the backbone bit by bit, positions resampled."""
    serve(server, TI16, file)
    model = keras_vit.ViT.from_preset(
        TI16, num_classes=3, image_size=(96, 128), labels=("a", "b", "c")
    )
    assert model.labels == ("a", "b", "c")
    assert model.report.resized == ["position_embedding/grid"]
    assert model.report.initialised == ["head/kernel", "head/bias"]
    assert changed(values(source), values(model)) == {
        "position_embedding/grid",
        "head/kernel",
        "head/bias",
    }
    expected = keras_vit.resample(
        values(source)["position_embedding/grid"][0],
        (6, 8),
        rule=model.config.tokens.resampling,
    )
    np.testing.assert_allclose(
        values(model)["position_embedding/grid"][0], expected, atol=1e-6
    )


def test_another_file_than_the_row(server, file):
    """What the server gives under the name of the larger one."""
    serve(server, "vit_s16", file)
    with pytest.raises(ValueError, match="num_heads=3.*Received: num_heads=6"):
        keras_vit.ViT.from_preset("vit_s16")


def test_licence_is_said_once(server, file, monkeypatch, caplog):
    row = dataclasses.replace(find_preset(TI16), license="CC-BY-NC-4.0")
    monkeypatch.setattr(published, "find_preset", lambda name: row)
    published._say_licence.cache_clear()
    serve(server, TI16, file)
    with caplog.at_level(logging.WARNING, "keras_vit"):
        keras_vit.ViT.from_preset(TI16)
        keras_vit.ViT.from_preset(TI16)
    said = [r.message for r in caplog.records if "non-commercial" in r.message]
    assert len(said) == 1
    assert "CC-BY-NC-4.0" in said[0]


def test_the_other_class(server, tmp_path):
    """A BiT by name: `ViT` points to `ResNetV2`, which has it."""
    name = "bit_r50x1"
    config = find_preset(name).config
    row = keras_vit.resnet_config(
        "r26x0.5", num_classes=config.num_classes, image_size=64
    )
    model = fill(keras_vit.ResNetV2(row))
    path = tmp_path / "bit.npz"
    keras_vit.save_checkpoint(model, path, "bit")
    loaded = keras_vit.load_checkpoint(path, image_size=64)
    assert isinstance(loaded, keras_vit.ResNetV2)
    assert changed(values(model), values(loaded)) == set()
    serve(server, name, path)
    with pytest.raises(ValueError, match=r"stages=\(3, 4, 6, 3\)"):
        keras_vit.ResNetV2.from_preset(name)


HUB = """
import numpy as np
import keras_vit
for name in ("hf://me/vit", "timm/vit"):
    model = keras_vit.ViT.from_preset(name, preprocessing=False)
    height, width = model.config.image_size
    images = np.linspace(-1, 1, height * width * 3, dtype="float32")
    images = images.reshape(1, height, width, 3)
    logits = model.predict(images, verbose=0)
    np.savez(model.report.layout, images=images, logits=logits)
"""


def test_the_hub(server, tmp_path):
    """C10: repositories of Hugging Face and timm, config and all.

    In a process of its own: the hub's library reads its environment once.
    """
    folders = {"me": "hf_vit_model", "timm": "timm_vit"}
    for user, name in folders.items():
        folder = next((GOLDEN / name).rglob("model.safetensors")).parent
        files = {p.name: p.read_bytes() for p in folder.iterdir()}
        server.add_repository(f"{user}/vit", files)
        folders[user] = folder
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HUB],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parent),
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(tmp_path / "hf"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for folder in folders.values():
        model = keras_vit.load_checkpoint(folder, preprocessing=False)
        with np.load(tmp_path / f"{model.report.layout}.npz") as there:
            here = predict(model, there["images"])
            np.testing.assert_allclose(here, there["logits"], atol=1e-6)


@pytest.mark.slow
def test_full_size(server, tmp_path, monkeypatch):
    """ViT-B/16, 346 MB: downloaded once, and offline the second time."""
    source = fill(keras_vit.ViT(find_preset("vit_b16").config))
    keras_vit.save_checkpoint(source, tmp_path / "B_16.npz", "google")
    serve(server, "vit_b16", tmp_path / "B_16.npz")
    for _ in range(2):
        model = keras_vit.ViT.from_preset("vit_b16")
        assert changed(values(source), values(model)) == set()
        monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert len(server.log) == 1

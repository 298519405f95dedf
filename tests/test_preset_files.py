"""A preset directory that is damaged, foreign, or in the way."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from random_weights import changed
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import values

import keras_vit
from keras_vit import preset_files

SMALL = {"image_size": (8, 12), "depth": 1}
PARTS = ["config.json", "labels.json", "model.weights.h5"]


@pytest.fixture(scope="module")
def model():
    return filled(**SMALL, labels="abcde")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A preset that no test writes to."""
    path = tmp_path_factory.mktemp("presets") / "whole"
    model.save_to_preset(path)
    return path


@pytest.fixture
def preset(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "preset")


def cut(name):
    """Keeps the first two thirds of a file."""

    def damage(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) * 2 // 3])

    return damage


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def edit(**changes):
    """Puts values into config.json, at dotted keys; `None` deletes."""

    def damage(folder):
        facts = json.loads((folder / "config.json").read_text("utf-8"))
        for key, value in changes.items():
            *parents, last = key.split("__")
            place = facts
            for parent in parents:
                place = place[parent]
            place[last] = value
            if value is None:
                del place[last]
        (folder / "config.json").write_text(json.dumps(facts), "utf-8")

    return damage


def same_size(folder):
    """Bytes of another kind, as many as before."""
    path = folder / "model.weights.h5"
    path.write_bytes(b"\x7f" * path.stat().st_size)


AGAIN = "Copy or save the preset again"
CASES = {
    "no-config": (remove("config.json"), rf"without config\.json\. {AGAIN}"),
    "no-weights": (
        remove("model.weights.h5"),
        rf"model\.weights\.h5 with \d+ bytes.*no such file\. {AGAIN}",
    ),
    "no-labels": (
        remove("labels.json"),
        rf"labels\.json with \d+ bytes.*no such file\. {AGAIN}",
    ),
    "cut-config": (cut("config.json"), rf"config\.json, which fails.*{AGAIN}"),
    "cut-weights": (
        cut("model.weights.h5"),
        rf"model\.weights\.h5 with (\d+) bytes.*Received: \d+ bytes\. {AGAIN}",
    ),
    "cut-labels": (cut("labels.json"), rf"labels\.json with .*{AGAIN}"),
    "no-hdf5": (same_size, rf"HDF5.*model\.weights\.h5.*{AGAIN}"),
    "binary": (write("config.json", b"\xff\xfe\0"), rf"whole JSON.*{AGAIN}"),
    "empty": (write("config.json", b""), rf"whole JSON.*{AGAIN}"),
    "list": (write("config.json", b"[]"), r"format, class, model, bytes\..*"),
    "other-library": (
        write("config.json", b'{"model_type": "vit", "hidden_size": 768}'),
        r"without format, class, model, bytes\..*load_checkpoint",
    ),
    "no-sizes": (edit(bytes=None), r"without bytes\."),
    "format-kind": (edit(format="2"), r"without format\."),
    "no-model": (edit(model__config=None), r"a config in model"),
    "newer": (
        edit(format=99, keras_vit="9.0"),
        r"newer version.*format 1 or older.*format 99 of keras_vit 9\.0.*"
        r"pip install -U keras-vit-garden",
    ),
    "other-class": (
        edit(**{"class": "ResNetV2"}),
        r"another class.*Expected: ViT.*ResNetV2.*ResNetV2\.from_preset",
    ),
    "unknown-field": (
        edit(model__config__block__wibble=1),
        r"BlockConfig.*activation.*also: wibble.*upgrade",
    ),
    "bad-value": (
        edit(model__config__depth="twelve"),
        r"`depth` is a count.*depth='twelve'",
    ),
    "other-shape": (
        edit(model__config__image_size=[16, 12]),
        r"\(1, 4, 3, 64\) for position_embedding/grid.*with_image_size",
    ),
    "other-depth": (edit(model__config__depth=2), r"HDF5 file for this model"),
}


@pytest.mark.parametrize("name", CASES)
def test_damaged_presets(name, preset):
    """What was expected, which file, what to do; before the model is used."""
    damage, match = CASES[name]
    damage(preset)
    with pytest.raises(ValueError, match=f"(?s){match}") as caught:
        keras_vit.ViT.from_preset(preset)
    message = str(caught.value)
    assert "Expected: " in message
    assert "Received" in message
    if name not in ("unknown-field", "bad-value"):  # know no file
        assert "preset" in message.replace("from_preset", "")


def test_whole_preset_loads(model, preset):
    """The rows above fail for their damage, not for the fixture."""
    assert sorted(p.name for p in preset.iterdir()) == PARTS
    again = keras_vit.ViT.from_preset(preset)
    assert changed(values(model), values(again)) == set()


def test_unknown_preset():
    with pytest.raises(ValueError, match="'vit_nano_fashion_mnist'"):
        keras_vit.ViT.from_preset("vit_nano_fashion_mnits")


def listing(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*"))


def half_a_file(path):
    pathlib.Path(path).write_bytes(b"half")
    raise OSError("No space left on device")


def test_save_that_fails_leaves_the_old_one(model, preset, monkeypatch):
    """While weights are written: nothing new, nothing lost, no litter."""
    before = listing(preset.parent)
    other = filled(**SMALL, seed=1)
    monkeypatch.setattr(other, "save_weights", half_a_file)
    with pytest.raises(OSError, match="No space"):
        other.save_to_preset(preset)
    with pytest.raises(OSError, match="No space"):
        other.save_to_preset(preset.parent / "new")
    assert listing(preset.parent) == before
    again = keras_vit.ViT.from_preset(preset)
    assert changed(values(model), values(again)) == set()


def test_last_step_that_fails_leaves_the_old_one(model, preset, monkeypatch):
    """Between the old directory's leaving and the new one's coming."""
    before = listing(preset.parent)
    rename = pathlib.Path.rename

    def refuse(self, target):
        if self.name == "new":
            raise PermissionError("no")
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", refuse)
    with pytest.raises(PermissionError):
        filled(**SMALL, seed=1).save_to_preset(preset)
    assert listing(preset.parent) == before
    again = keras_vit.ViT.from_preset(preset)
    assert changed(values(model), values(again)) == set()


def test_save_replaces_an_earlier_preset(preset, tmp_path):
    """All of it: labels that the new model lacks do not stay behind."""
    other, images = filled(**SMALL, seed=1), pictures(2, 8, 12)
    other.save_to_preset(preset)
    assert listing(preset.parent) == [
        pathlib.Path("preset"),
        pathlib.Path("preset/config.json"),
        pathlib.Path("preset/model.weights.h5"),
    ]
    again = keras_vit.ViT.from_preset(preset)
    assert again.labels is None
    np.testing.assert_array_equal(
        predict(again, images), predict(other, images)
    )
    (tmp_path / "deep" / "empty").mkdir(parents=True)
    other.save_to_preset(tmp_path / "deep" / "empty")
    other.save_to_preset(tmp_path / "deep" / "of" / "new" / "parents")


STRANGERS = {
    "photos": ({"cat.jpg": b"", "dog.jpg": b""}, r"with cat\.jpg, dog\.jpg"),
    "beside": ({"notes.txt": b"mine"}, r"with notes\.txt"),
    "other-library": (
        {"config.json": b'{"model_type": "vit"}'},
        r"without format, class.*Delete the directory or choose another",
    ),
    "weights-alone": (
        {"model.weights.h5": b"x", "config.json": None},
        r"without config\.json.*Delete the directory or choose another",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_not_replaced(name, model, preset):
    """What is not ours is not deleted, whatever it is called."""
    files, match = STRANGERS[name]
    for path, data in files.items():
        if data is None:
            (preset / path).unlink()
        else:
            (preset / path).write_bytes(data)
    before = {p: p.read_bytes() for p in preset.iterdir()}
    with pytest.raises(ValueError, match=f"(?s)Will not replace.*{match}"):
        model.save_to_preset(preset)
    assert {p: p.read_bytes() for p in preset.iterdir()} == before


def test_a_file_is_not_replaced(model, tmp_path):
    (tmp_path / "vit").write_text("mine")
    with pytest.raises(ValueError, match="A preset is a directory.*the file"):
        model.save_to_preset(tmp_path / "vit")
    assert (tmp_path / "vit").read_text() == "mine"


def test_sizes_are_of_every_other_file(preset):
    """What config.json does not list, a load would not check."""
    facts = json.loads((preset / "config.json").read_text("utf-8"))
    assert sorted(["config.json", *facts["bytes"]]) == PARTS
    assert facts["format"] == preset_files.FORMAT
    assert facts["keras_vit"] == keras_vit.__version__

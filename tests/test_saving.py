"""Whole models on disk: `.keras`, `.weights.h5` and presets give them back."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from random_weights import fill
from random_weights import pictures
from random_weights import predict
from random_weights import tiny

import keras_vit
from keras_vit.resnet import ResNetV2
from keras_vit.resnet_config import ResNetConfig
from keras_vit.resnet_config import resnet_config

ROOT = pathlib.Path(__file__).parent.parent
SMALL = {"image_size": (8, 12), "depth": 1}
# Together they change every field of a config. A new field gets its value in
# one of them.
ROWS = {
    "sizes": {
        **SMALL,
        "width": 32,
        "mlp_dim": 48,
        "num_heads": 4,
        "patch_size": (4, 2),
    },
    "tokens": {
        **SMALL,
        "patch_bias": False,
        "distillation_token": True,
        "num_registers": 2,
        "register_positions": True,
        "position": "learned_2d",
        "resampling": "zoom",
        "norm_pre": True,
        "activation": "swiglu",
        "epsilon": 1e-5,
        "qkv_bias": False,
        "layer_scale": 0.5,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.2,
        "stochastic_depth_rate": 0.3,
        "num_classes": 3,
        "norm": "after_pooling",
        "pre_logits": 6,
        "head_bias": False,
        "distillation_head": False,
    },
    "pixels": {
        **SMALL,
        "class_token": False,
        "prefix_positions": False,
        "position": "relative",
        "pooling": "map",
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.3, 0.4),
        "resize": "crop",
        "crop_fraction": 0.9,
        "interpolation": "bilinear",
        "antialias": False,
        "any_image_size": True,
        "preprocessing": False,
        "data_format": "channels_first",
        "unit": "pre_activation",  # without stages it is only kept
    },
    "hybrid": {
        **SMALL,
        "patch_size": 1,
        "stages": (1,),
        "trunk_width": 32,
        "standardization": "sqrt_var_plus_eps",
        "conv_epsilon": 1e-8,
        "group_norm_epsilon": 1e-5,
        "conv_padding": "fixed",
        "root_pool": "zero",
    },
}
RESNET = {
    "image_size": (32, 24),
    "num_classes": 3,
    "stages": (1,),
    "trunk_width": 32,
    "mean": (0.4, 0.5, 0.6),
    "data_format": "channels_first",
}
FORMS = ["keras", "preset"]
LABELS = ("a", "b", "é")
KNOWN = """
def known(model):
    return [
        type(model).__name__,
        model.labels,
        model.policy.name,
        model.name,
        model.quantization,
        model.config.to_dict(),
    ]
"""
# In a process of its own: every kind from every form, into one file. The
# bits of a `.weights.h5` suffice: a preset predicts with the same config.
FRESH = f"""
import json, sys
import keras, numpy as np
import keras_vit
{KNOWN}
logits, facts = {{}}, {{}}
for kind in sys.argv[1:]:
    images = np.load(f"{{kind}}.npy")
    first = keras.models.load_model(f"{{kind}}.keras")
    same = type(first).from_config(json.load(open(f"{{kind}}.json")))
    same.load_weights(f"{{kind}}.weights.h5")
    preset = type(first).from_preset(kind)
    for one, other in zip(same.weights, preset.weights):
        np.testing.assert_array_equal(np.array(one), np.array(other))
    for form, model in {{"keras": first, "preset": preset}}.items():
        logits[f"{{kind}}/{{form}}"] = model.predict(images, verbose=0)
        facts[f"{{kind}}/{{form}}"] = known(model)
np.savez("fresh.npz", **logits)
json.dump(facts, open("fresh.json", "w"))
"""


def config_of(row):
    # `replace` takes an `image_size` for a fixed one.
    row = dict(row)
    any_size = row.pop("any_image_size", False)
    return tiny(**row).replace(any_image_size=any_size)


def vit(row, labels=None, dtype=None):
    return fill(keras_vit.ViT(config_of(row), labels=labels, dtype=dtype))


def resnet():
    return fill(ResNetV2(resnet_config_of(), name="bit"))


def resnet_config_of():
    return resnet_config("r26x1").replace(**RESNET)


def quantized():
    model = vit(SMALL, dtype="mixed_bfloat16")
    model.quantize("int8")
    return model


KINDS = {
    "tokens": lambda: vit(ROWS["tokens"], labels=LABELS),
    "pixels": lambda: vit(ROWS["pixels"]),
    "hybrid": lambda: vit(ROWS["hybrid"], dtype="mixed_bfloat16"),
    "int8": quantized,
    "resnet": resnet,
}


def inputs(model):
    config = model.config
    images = pictures(2, *config.image_size)
    if not config.preprocessing:
        images = (images / 127.5 - 1).astype("float32")
    first = config.data_format == "channels_first"
    return images.transpose(0, 3, 1, 2) if first else images


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with every kind in every form; logits and facts by kind."""
    space = {}
    exec(KNOWN, space)
    folder, expected = tmp_path_factory.mktemp("saved"), {}
    for kind, make in KINDS.items():
        model = make()
        images = inputs(model)
        logits = predict(model, images)
        facts = json.loads(json.dumps(space["known"](model)))
        expected[kind] = logits, facts
        np.save(folder / f"{kind}.npy", images)
        config = json.dumps(model.get_config())
        (folder / f"{kind}.json").write_text(config, "utf-8")
        model.save(folder / f"{kind}.keras")
        model.save_weights(folder / f"{kind}.weights.h5")
        model.save_to_preset(folder / kind)
    return folder, expected


@pytest.fixture(scope="module")
def fresh(saved):
    """Logits and facts of all that a new process has loaded."""
    folder, _ = saved
    env = {**os.environ, "KERAS_BACKEND": keras.config.backend()}
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FRESH, *KINDS],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads((folder / "fresh.json").read_text("utf-8"))
    with np.load(folder / "fresh.npz") as logits:
        return {k: (logits[k], facts[k]) for k in facts}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_fresh_process(kind, form, fresh, saved):
    """C01, C11: no `custom_objects`, the same bits, labels and policy."""
    logits, facts = fresh[f"{kind}/{form}"]
    before, facts_before = saved[1][kind]
    assert facts == facts_before
    assert np.ptp(before) > 0.1
    np.testing.assert_array_equal(logits, before)


def flat(config):
    """Name to value of all fields, those of the parts included."""
    out = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        out.update(flat(value) if nested else {field.name: value})
    return out


def test_rows_change_every_field():
    """C03: a field that no row changes is one that a save may forget."""
    default = flat(keras_vit.ViTConfig())
    configs = [flat(config_of(row)) for row in ROWS.values()]
    same = {
        name
        for name, value in default.items()
        if all(config[name] == value for config in configs)
    }
    assert same == set()


@pytest.mark.parametrize("row", [*ROWS, "resnet"])
def test_config_round_trip(row):
    """C03: through JSON text, with every type as it was."""
    resnet = row == "resnet"
    config = resnet_config_of() if resnet else config_of(ROWS[row])
    values = json.loads(str(config))
    assert values == config.to_dict()
    again = type(config).from_dict(values)
    assert again == config
    assert repr(again) == repr(config)  # a tuple stays one
    assert hash(again) == hash(config)


@pytest.mark.parametrize("cls", [keras_vit.ViTConfig, ResNetConfig])
def test_config_field_of_a_newer_version(cls):
    values = cls().to_dict()
    values["trunk"]["wibble"] = 1
    with pytest.raises(ValueError, match=r"TrunkConfig.*also: wibble.*upgrade"):
        cls.from_dict(values)

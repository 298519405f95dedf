"""Checkpoints that the references wrote, read by nothing but their path.

`oracles/golden/<layout>` are files of the reference implementations with
random weights, inputs and the outputs that the reference gave on a CPU in
float32 (versions in each `config.json`). Two implementations differ by at
most 2.5e-6 in tokens and 1.1e-6 in logits; the bar is 2e-5. The layouts that
are too many to copy are read from beside the checkout where that has them.
"""

import json
import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.weights.open_file import open_tensors

HERE = pathlib.Path(__file__).parent
FOLDERS = {
    path.parent.name: path.parent
    for root in (
        HERE.parent.parent / "shared" / "golden",
        HERE / "oracles" / "golden",
    )
    for path in sorted(root.glob("*/config.json"))
    if "checkpoint" in json.loads(path.read_text())
}
# Their outputs are compared in test_resnet.py.
RESNETS = ("bit_", "google_hybrid", "timm_hybrid")
NAMES = [name for name in FOLDERS if not name.startswith(RESNETS)]
ACTIVATIONS = {
    "logits": "logits",
    "image_embeds": "logits",
    "pre_logits": "pre_logits",
    "pooled": "pre_logits",
    "pooler_output": "pre_logits",
    "tokens": "norm",
}
LAST = "block_-1"
# Where a reference means something else by one of these words.
ELSEWHERE = {
    "hf_clip_full": {"tokens": LAST},
    "hf_clip_vision": {"tokens": LAST},
    "openai_clip": {"tokens": LAST},
    "mae_finetune_gap": {"tokens": LAST},
    "timm_vit_reg4_gap": {"tokens": LAST},
    "hf_dinov2": {"pooler_output": "class"},
    "hf_dinov2_registers": {"pooler_output": "class"},
    "hf_dinov2_swiglu": {"pooler_output": "class"},
    # Inputs masked by a noise that only the autoencoder takes.
    "hf_vitmae": {"tokens": None, "logits": None},
    "mae_pretrain": {"tokens": None},
}


def cannot_say(name):
    """What neither the file nor the folder says: heads, grids, a flavour."""
    facts = json.loads((FOLDERS[name] / "config.json").read_text())
    sizes = facts["hparams"]
    said = {"preprocessing": False}
    if name.startswith(RESNETS):
        said["image_size"] = tuple(sizes["image"])
        heads = {"num_heads": sizes["heads"]} if "timm_h" in name else {}
        return {**said, **heads}
    if not name.startswith(("google", "bigvision", "hf_", "timm_")):
        said["num_heads"] = sizes["heads"]
    if name == "dino_original":  # Its names are timm's.
        said["resampling"] = "dino"
    height, width = sizes["image"]
    square = height == width
    if name == "bigvision_vit_gap_sincos2d" or (
        not square and not name.startswith(("hf_", "timm_"))
    ):
        said["image_size"] = (height, width)
    return said


def load(name):
    facts = json.loads((FOLDERS[name] / "config.json").read_text())
    path = FOLDERS[name] / facts["checkpoint"]
    return keras_vit.load_checkpoint(path, **cannot_say(name))


def activation(model, images, where):
    """One activation of a model, as an array."""
    if where == "class":
        return activation(model, images, "norm")[:, 0]
    name = -1 if where == LAST else where
    output = model.feature_model(name)(images)
    return keras.ops.convert_to_numpy(next(iter(output.values())))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_the_reference(name):
    """A01, A02, A07, A10, A13, A18, A21, A22: max abs 2e-5."""
    model = load(name)
    io = np.load(FOLDERS[name] / "io.npz")
    where = {**ACTIVATIONS, **ELSEWHERE.get(name, {})}
    compared = 0
    for suffix in ("", "_interp"):
        if f"images{suffix}" not in io:
            continue
        images = io[f"images{suffix}"]
        sized = model.with_image_size(images.shape[1:3]) if suffix else model
        for output, inner in where.items():
            if inner is None or output + suffix not in io:
                continue
            np.testing.assert_allclose(
                activation(sized, images, inner),
                io[output + suffix],
                atol=2e-5,
                rtol=2e-5,
                err_msg=output + suffix,
            )
            compared += 1
    assert compared or name in (
        "hf_vitmae",
        "mae_pretrain",
        "bigvision_flexivit",
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_save_gives_the_file_back(name, tmp_path):
    """A13: names, shapes and bits, the key bias included."""
    if name == "mae_linprobe":
        pytest.skip("its batch norm is folded into the head, not kept")
    model = load(name)
    report = model.report
    out = tmp_path / "out.npz"
    keras_vit.save_checkpoint(model, out, report.layout, report.prefix)
    facts = json.loads((FOLDERS[name] / "config.json").read_text())
    with (
        open_tensors(FOLDERS[name] / facts["checkpoint"]) as theirs,
        open_tensors(out) as ours,
    ):
        for key in ours:
            source = key
            block = None
            if source not in theirs:  # scanned blocks
                head, _, tail = key.partition("encoderblock_")
                block, _, rest = tail.partition("/")
                source = f"{head}encoderblock/{rest}"
            expected = theirs[source].read().astype("float32")
            expected = expected if block is None else expected[int(block)]
            got = ours[key].read()
            assert got.shape == expected.shape, key
            assert got.tobytes() == expected.tobytes(), key
        assert len(ours) == len(report.used)


def test_report_says_what_became_of_every_tensor():
    """A16, A04."""
    model = load("bigvision_siglip_map")
    report = model.report
    assert report.layout == "big_vision"
    assert report.prefix == "params/img/"
    assert "params/t" in report.ignored
    assert "used" in str(report)


def copy_of(name, tmp_path, change):
    """The npz or safetensors file of a folder with its tensors changed."""
    facts = json.loads((FOLDERS[name] / "config.json").read_text())
    with open_tensors(FOLDERS[name] / facts["checkpoint"]) as tensors:
        arrays = {key: tensors[key].read() for key in tensors}
    change(arrays)
    path = tmp_path / "changed.npz"
    np.savez(path, **arrays)
    return path


def swap(a, b):
    def change(arrays):
        arrays[a], arrays[b] = arrays[b], arrays[a]

    return change


GOOGLE = "Transformer/encoderblock_1/"
MUTATIONS = {
    "missing": (
        lambda a: a.pop(GOOGLE + "LayerNorm_2/scale"),
        r"block_1/norm_2/gamma",
    ),
    "junk": (lambda a: a.update(junk=np.zeros(3)), r"unknown tensor junk"),
    "shape": (
        lambda a: a.update({"head/bias": np.zeros(8, "float32")}),
        r"head/bias \(8,\)",
    ),
    "swapped": (
        swap(
            GOOGLE + "MlpBlock_3/Dense_0/kernel",
            GOOGLE + "MlpBlock_3/Dense_1/kernel",
        ),
        r"Dense_\d/kernel",
    ),
    "nan": (lambda a: a["cls"].fill(np.nan), r"NaN or infinite ones in cls"),
    "no block": (
        lambda a: [a.pop(k) for k in list(a) if GOOGLE in k],
        r"Missing: block 1",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_changed_files_are_refused(mutation, tmp_path):
    """A16: never a model with wrong weights; the tensor is named."""
    change, match = MUTATIONS[mutation]
    path = copy_of("google_vit_augreg", tmp_path, change)
    with pytest.raises(ValueError, match=match):
        keras_vit.load_checkpoint(path, image_size=(24, 30))


def test_wrong_numerics_are_seen():
    """A01, A02: the other GELU and the other epsilon miss the bar."""
    folder = FOLDERS["timm_vit"]
    io = np.load(folder / "io.npz")
    for wrong in ({"activation": "gelu_tanh"}, {"epsilon": 1e-5}):
        model = keras_vit.load_checkpoint(
            folder / "hub", preprocessing=False, **wrong
        )
        off = activation(model, io["images"], "logits") - io["logits"]
        assert np.abs(off).max() > 1e-4


def test_what_no_file_says_is_asked_for():
    folder = FOLDERS["deit3_original"]
    with pytest.raises(ValueError, match="Pass num_heads"):
        keras_vit.load_checkpoint(folder / "model.safetensors")
    folder = FOLDERS["google_vit_augreg"]
    with pytest.raises(ValueError, match="image_size"):
        keras_vit.load_checkpoint(folder / "checkpoint.npz")


def test_changes_touch_nothing_else():
    """A15: another head or size, the backbone's bits as in the file."""
    folder = FOLDERS["timm_vit"] / "hub"
    model = keras_vit.load_checkpoint(folder)
    other = keras_vit.load_checkpoint(folder, num_classes=3, image_size=60)
    values = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    changed = {
        v.path
        for v in other.weights
        if v.shape != values[v.path].shape
        or (keras.ops.convert_to_numpy(v) != values[v.path]).any()
    }
    assert changed == {"position_embedding/grid", "head/kernel", "head/bias"}


def test_load_weights_into_a_model():
    folder = FOLDERS["timm_vit"] / "hub"
    model = keras_vit.load_checkpoint(folder)
    fresh = keras_vit.ViT(model.config)
    report = keras_vit.load_weights(fresh, folder)
    assert len(report.used) == 44
    for a, b in zip(model.weights, fresh.weights, strict=True):
        assert (
            keras.ops.convert_to_numpy(a) == keras.ops.convert_to_numpy(b)
        ).all()
    smaller = keras_vit.ViT(model.config.replace(depth=2))
    with pytest.raises(ValueError, match="with 2 blocks.*with 3"):
        keras_vit.load_weights(smaller, folder)


def test_formats_that_cannot_hold_the_model(tmp_path):
    config = keras_vit.vit_config("nano/4", image_size=8, depth=1)
    model = keras_vit.ViT(config.replace(num_registers=2))
    with pytest.raises(ValueError, match="register_tokens/token"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz", format="google")
    with pytest.raises(ValueError, match="Did you mean 'timm'"):
        keras_vit.save_checkpoint(model, tmp_path / "a.npz", format="tim")
    assert list(tmp_path.iterdir()) == []

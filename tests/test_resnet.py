"""BiT and the hybrids against the references that they come from.

`oracles/golden/{google_hybrid,timm_hybrid,bit}_*`: files of the references
with random weights, and what these gave on a CPU in float32 (versions in each
`config.json`). Two implementations differ by 3.2e-6 in the logits of a hybrid,
1.2e-5 in a BiT's root, whose values go up to 35. The last stage of
`bit_bigtransfer` (up to 59) is 1.7e-4 off float64 in the reference itself, and
1.9e-4 here. Inputs are normalised pixels; on `images_small` a wrong epsilon
shows.
"""

import json
import pathlib

import numpy as np
import pytest
from random_weights import predict

import keras_vit
from keras_vit.weights.resnet_layouts import BITS
from keras_vit.weights.resnet_layouts import unnumbered
from keras_vit.weights.resnet_layouts import with_trunk

GOLDEN = pathlib.Path(__file__).parent / "oracles" / "golden"
ORACLES = [
    "google_hybrid_r",
    "google_hybrid_r_ti",
    "timm_hybrid_r",
    "timm_hybrid_r_ti",
    "bit_bigtransfer",
    "bit_bigvision",
    "bit_bigvision_v1",
    "bit_timm",
]
# fmt: off
OUTPUTS = {
    # output of the reference: our layer and the bar
    "logits":         ("logits", 2e-5),
    "pre_logits":     ("pre_logits", 2e-5),
    "tokens":         ("norm", 2e-5),
    "embedding_grid": ("patch_embedding", 2e-7),
    "stem":           ("root", 5e-5),
    "features":       ("relu", 2e-5),
    "body":           ("stage_3", 5e-4),
}
# fmt: on


def load(name, **changes):
    """The model of an oracle, read from its file, and inputs and outputs."""
    facts = json.loads((GOLDEN / name / "config.json").read_text())
    sizes = facts["hparams"]
    if name.startswith("timm"):
        changes["num_heads"] = sizes["heads"]
    model = keras_vit.load_checkpoint(
        GOLDEN / name / facts["checkpoint"],
        image_size=tuple(sizes["image"]),
        preprocessing=False,
        **changes,
    )
    return model, dict(np.load(GOLDEN / name / "io.npz"))


@pytest.mark.parametrize("name", ORACLES)
def test_outputs_of_the_reference(name):
    """A08, A09: all that the reference gave, on ordinary and small pixels."""
    model, io = load(name)
    outputs = {k: v for k, v in OUTPUTS.items() if k in io}
    if name == "bit_bigvision_v1":  # its last unit ends in the activation
        outputs["features"] = ("stage_1", 2e-5)
    inner = model.feature_model([layer for layer, _ in outputs.values()])
    for suffix in ("", "_small"):
        if f"images{suffix}" not in io:
            continue
        ours = predict(inner, io[f"images{suffix}"])
        for output, (layer, bar) in outputs.items():
            if output + suffix in io:
                np.testing.assert_allclose(
                    ours[layer],
                    io[output + suffix],
                    atol=bar,
                    rtol=2e-5,
                    err_msg=output + suffix,
                )


SQRT = "sqrt_var_plus_eps"
# fmt: off
WRONG = [
    ("google_hybrid_r",  {"group_norm_epsilon": 1e-5}, "_small", 1e-3),
    ("google_hybrid_r",  {"standardization": SQRT}, "_small", 1e-3),
    ("timm_hybrid_r",    {"conv_epsilon": 1e-5}, "", 1e-4),
    ("google_hybrid_r",  {"conv_padding": "fixed"}, "", 1e-3),
    ("google_hybrid_r",  {"root_pool": "zero"}, "", 1e-3),
    ("bit_bigtransfer",  {"root_pool": "minus_infinity"}, "", 1e-3),
    ("bit_bigtransfer",  {"conv_epsilon": 1e-8}, "", 1e-3),
    ("bit_bigvision",    {"root_pool": "zero"}, "", 1e-3),
    ("bit_timm",         {"conv_padding": "same"}, "", 1e-3),
]
# fmt: on


@pytest.mark.parametrize(("name", "changes", "suffix", "least"), WRONG)
def test_wrong_numerics_are_seen(name, changes, suffix, least):
    """A09: the other epsilon, flavour or padding misses the bar."""
    model, io = load(name, **changes)
    wrong = predict(model, io[f"images{suffix}"]) - io[f"logits{suffix}"]
    assert np.abs(wrong).max() > least


def test_stages_without_a_gap():
    names = [f"stages.{s}.blocks.0.conv1.weight" for s in (0, 2)]
    with pytest.raises(ValueError, match=r"\(0, 0\), \(2, 0\)"):
        with_trunk(BITS["bit_timm"], "", dict.fromkeys(names))


def test_numbered_names_of_tensorflow():
    name = "resnet/block1/unit01/a/standardized_conv2d{}/kernel"
    assert unnumbered({name.format("_7"): 1}) == {name.format(""): 1}

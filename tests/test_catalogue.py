"""The catalogue against what is published.

`oracles/published.csv` lists the tags, licences, accuracies and weight counts
(in millions, two decimals) that timm publishes for its ViT family.
"""

import collections
import csv
import fnmatch
import pathlib
import re

import numpy as np
import pytest

import keras_vit
from keras_vit.imagenet import imagenet_labels
from keras_vit.imagenet import real_accuracy
from keras_vit.presets import UNSUPPORTED
from keras_vit.presets import augreg_preset
from keras_vit.presets import catalogue
from keras_vit.presets import find_preset

ORACLE = pathlib.Path(__file__).parent / "oracles" / "published.csv"
with ORACLE.open() as _file:
    PUBLISHED = {row["tag"]: row for row in csv.DictReader(_file)}
COUNTED = [tag for tag, row in PUBLISHED.items() if row["params_m"]]
PATTERNS = list(UNSUPPORTED)


def unsupported(tag):
    return [p for p in PATTERNS if fnmatch.fnmatchcase(tag, p)]


def test_every_published_row_is_there_or_named():
    """All 362: ours under their tag, or one reason why not."""
    assert len(PUBLISHED) == 362
    aliases = {a for preset in catalogue().values() for a in preset.aliases}
    for tag in PUBLISHED:
        assert (tag in aliases) + len(unsupported(tag)) == 1, tag
    for pattern in UNSUPPORTED:
        assert fnmatch.filter(PUBLISHED, pattern), pattern


@pytest.mark.parametrize("tag", [t for t in COUNTED if not unsupported(t)])
def test_published_weight_counts(tag):
    """K01: the row's architecture has as many weights as the published one.

    Files with other contents than timm's copy are left out: Google's
    fine-tuned ones of 2020 have the same count.
    """
    config = find_preset(tag).config
    millions = keras_vit.count_params(config) / 1e6
    assert millions == pytest.approx(
        float(PUBLISHED[tag]["params_m"]), abs=6e-3
    )


def test_published_accuracies_and_licences():
    for tag, row in PUBLISHED.items():
        if unsupported(tag):
            continue
        preset = find_preset(tag)
        assert preset.license.lower() in (row["license"], "unknown")
        if preset.reference.startswith("timm"):
            assert preset.top_1 == float(row["top_1"])
        assert (preset.top_1 is None) == (preset.reference == "")


def test_names():
    """L09: one grammar, no name twice, aliases included."""
    names = collections.Counter(list(catalogue()))
    for name, preset in catalogue().items():
        assert re.fullmatch(r"[a-zA-Z0-9]+(_[a-zA-Z0-9]+)+", name)
        names.update(preset.aliases)
    assert max(names.values()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "vit_b16",
        "vit_b16_in21k",
        "vit_b16_384",
        "deit_s16_distilled",
        "r50_vit_b16",
        "dinov2_s14_reg4",
        "mae_l16",
        "vit_base_patch16_224.augreg_in21k_ft_in1k",
        "google/vit-base-patch16-224",
        "vit_b_16",
        "vit_base_patch16_224_imagenet",
        "ViT-B_16",
    ],
)
def test_names_of_every_library(name):
    assert find_preset(name).config.num_classes >= 0


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("vit_b17", "Did you mean 'vit_b16'"),
        ("aimv2_1b_patch14_224.apple_pt", "RMS norms"),
        ("gs://vit_models/augreg/B_16.npz", "not the name of an AugReg file"),
    ],
)
def test_unknown_names(name, match):
    with pytest.raises(ValueError, match=match):
        keras_vit.ViT.from_preset(name)


@pytest.mark.parametrize(
    ("name", "variant", "size", "classes"),
    [
        (
            "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
            "ti/16",
            224,
            21843,
        ),
        (
            "B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1"
            "--cifar100-steps_10k-lr_0.003-res_384",
            "b/32",
            384,
            100,
        ),
        (
            "R26_S_32-i21k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1"
            "--oxford_iiit_pet-steps_0k-lr_0.003-res_224",
            "r26+s/32",
            224,
            37,
        ),
        (
            "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
            "r+ti/16",
            224,
            21843,
        ),
    ],
)
def test_any_augreg_file_by_its_name(name, variant, size, classes):
    """Size, resolution and class count of the 50,000 are in their names."""
    preset = augreg_preset(f"gs://vit_models/augreg/{name}.npz")
    assert (preset.variant, preset.image_size) == (variant, size)
    assert preset.config.num_classes == classes


def test_class_names():
    assert imagenet_labels()[:2] == (
        "tench, Tinca tinca",
        "goldfish, Carassius auratus",
    )
    assert len(set(imagenet_labels())) > 990
    assert len(imagenet_labels(21843)) == 21843
    with pytest.raises(ValueError, match="1000, 21843"):
        imagenet_labels(11821)


def test_real_accuracy():
    """Images without a label do not count; any of several is right."""
    never = np.full(50000, 1000)
    assert real_accuracy(never) == 0
    right = never.copy()
    right[1] = 795  # the second of two labels of the second image
    assert real_accuracy(right) == pytest.approx(1 / 46837)
    scores = np.zeros((50000, 1000), "float32")
    scores[1, 795] = 1
    assert real_accuracy(scores) > real_accuracy(never)
    with pytest.raises(ValueError, match="50000"):
        real_accuracy(never[:-1])


@pytest.mark.parametrize(
    ("name", "size", "resize"),
    [
        ("vit_base_patch16_224.augreg_in21k_ft_in1k", 224, "crop"),
        ("vit_b16_384_swag", 384, "crop"),
        ("vit_b16_swag_linear", 224, "crop"),
        ("vit_l16_512_swag", 512, "crop"),
        ("vit_h14_518_swag", 518, "crop"),
    ],
)
def test_size_pixels_and_licence_come_with_the_name(name, size, resize):
    """A14, K07."""
    preset = find_preset(name)
    assert preset.config.image_size == (size, size)
    assert preset.config.pixels.resize == resize
    assert preset.commercial == ("swag" not in name)

"""Which layout a file has, from its names alone."""

import fnmatch
import re
import typing

from keras_vit.weights.flax_layouts import BIG_VISION
from keras_vit.weights.flax_layouts import GOOGLE
from keras_vit.weights.flax_layouts import GOOGLE_LINEN
from keras_vit.weights.layouts import Layout
from keras_vit.weights.resnet_layouts import BITS
from keras_vit.weights.torch_layouts import DEIT3
from keras_vit.weights.torch_layouts import DINOV2
from keras_vit.weights.torch_layouts import DINOV2_SWIGLU
from keras_vit.weights.torch_layouts import HF
from keras_vit.weights.torch_layouts import HF_CLIP
from keras_vit.weights.torch_layouts import HF_DINOV2
from keras_vit.weights.torch_layouts import HF_SIGLIP
from keras_vit.weights.torch_layouts import HF_V5
from keras_vit.weights.torch_layouts import MAE_PROBE
from keras_vit.weights.torch_layouts import OPEN_CLIP
from keras_vit.weights.torch_layouts import OPENAI_CLIP
from keras_vit.weights.torch_layouts import TIMM
from keras_vit.weights.torch_layouts import TORCHVISION
from keras_vit.weights.torch_layouts import TORCHVISION_OLD

# The first whose marks are all there wins: the narrower before the wider.
LAYOUTS = {
    layout.name: layout
    for layout in (
        GOOGLE,
        GOOGLE_LINEN,
        BIG_VISION,
        TORCHVISION,
        TORCHVISION_OLD,
        OPENAI_CLIP,
        OPEN_CLIP,
        HF_CLIP,
        HF_SIGLIP,
        HF_DINOV2,
        HF_V5,
        HF,
        MAE_PROBE,
        DEIT3,
        DINOV2_SWIGLU,
        DINOV2,
        TIMM,
        *BITS.values(),
    )
}
# What is recognised only to be refused by name.
REFUSED = {
    "*MixerBlock_*": "an MLP-Mixer, which has no attention",
    "blocks.*.attn1.*": "a DeiT-III with parallel branches",
}


def find_layout(names: typing.Collection[str]) -> tuple[Layout, str]:
    """Returns the layout of a file with these names, and their prefix.

    Raises:
        ValueError: No layout fits; the first ten names are listed.
    """
    names = set(names)
    for pattern, what in REFUSED.items():
        if fnmatch.filter(names, pattern):
            raise ValueError(
                f"This file is {what}. Expected: a plain ViT, a hybrid or a "
                f"BiT. "
                f"Received: names like {fnmatch.filter(names, pattern)[0]!r}."
            )
    for layout in LAYOUTS.values():
        for prefix in layout.prefixes:
            if all(_full(prefix, mark) in names for mark in layout.marks):
                return layout, prefix
    shown = ", ".join(sorted(names)[:10])
    raise ValueError(
        f"No known layout has these names. Expected: one of "
        f"{', '.join(LAYOUTS)}. Received: {len(names)} names, first {shown}."
    )


def _full(prefix, name):
    """`^` stands for the top level."""
    return name[1:] if name[0] == "^" else prefix + name


def count_blocks(layout: Layout, prefix: str, names: typing.Collection[str]):
    """Returns the depth, counted from the names.

    Raises:
        ValueError: A block in the middle is missing.
    """
    row = next(r for r in layout.rows if r.ours == "block_{i}/norm_1")
    start, _, end = (prefix + str(row.theirs)).partition("{i}")
    pattern = re.compile(re.escape(start) + r"(\d+)" + re.escape(end))
    found = {int(m[1]) for m in map(pattern.match, names) if m}
    missing = set(range(max(found, default=-1) + 1)) - found
    if missing:
        raise ValueError(
            f"This file is not whole. Expected: blocks 0 to {max(found)}. "
            f"Missing: block {', '.join(map(str, sorted(missing)[:5]))}."
        )
    return len(found)

"""Layouts of BiT ResNets, and what a hybrid has in front of a ViT's rows.

A row of a unit stands for all units of all stages: `{s}` and `{u}` count them
from 0, `{s1}` and `{u1}` from 1. `with_trunk` writes them out.
"""

import re
import typing

from keras_vit.weights.layouts import Layout
from keras_vit.weights.layouts import Row
from keras_vit.weights.layouts import with_names

_OURS = "stage_{s}/unit_{u}/"
_FLAX = "block{s1}/unit{u1}/"
_BIT = "resnet/block{s1}/unit{u1:02d}/"
_TIMM = "stages.{s}.blocks.{u}."
_ROOT = "resnet/root_block/standardized_conv2d"

# fmt: off
FLAX_TRUNK = (
    Row("std_conv",   "root/conv",          "conv_root"),
    Row("group_norm", "root/norm",          "gn_root"),
    Row("std_conv",   _OURS + "conv_1",     _FLAX + "conv1"),
    Row("std_conv",   _OURS + "conv_2",     _FLAX + "conv2"),
    Row("std_conv",   _OURS + "conv_3",     _FLAX + "conv3"),
    Row("std_conv",   _OURS + "conv_proj",  _FLAX + "conv_proj"),
    Row("group_norm", _OURS + "norm_1",     _FLAX + "gn1"),
    Row("group_norm", _OURS + "norm_2",     _FLAX + "gn2"),
    Row("group_norm", _OURS + "norm_3",     _FLAX + "gn3"),
    Row("group_norm", _OURS + "norm_proj",  _FLAX + "gn_proj"),
)
TIMM_TRUNK = (
    Row("std_conv",   "root/conv",          "stem.conv", when=lambda c: bool(c.trunk.stages)),
    Row("std_conv",   "root/conv",          "conv"),
    Row("group_norm", "root/norm",          "stem.norm", when=lambda c: bool(c.trunk.stages)),
    Row("group_norm", "root/norm",          "norm"),
    Row("std_conv",   _OURS + "conv_1",     _TIMM + "conv1"),
    Row("std_conv",   _OURS + "conv_2",     _TIMM + "conv2"),
    Row("std_conv",   _OURS + "conv_3",     _TIMM + "conv3"),
    Row("std_conv",   _OURS + "conv_proj",  _TIMM + "downsample.conv"),
    Row("group_norm", _OURS + "norm_1",     _TIMM + "norm1"),
    Row("group_norm", _OURS + "norm_2",     _TIMM + "norm2"),
    Row("group_norm", _OURS + "norm_3",     _TIMM + "norm3"),
    Row("group_norm", _OURS + "norm_proj",  _TIMM + "downsample.norm"),
)
BIT_ROWS = (
    Row("std_conv",   "root/conv",          _ROOT),
    Row("group_norm", _OURS + "norm_1",     _BIT + "a/group_norm"),
    Row("std_conv",   _OURS + "conv_1",     _BIT + "a/standardized_conv2d"),
    Row("group_norm", _OURS + "norm_2",     _BIT + "b/group_norm"),
    Row("std_conv",   _OURS + "conv_2",     _BIT + "b/standardized_conv2d"),
    Row("group_norm", _OURS + "norm_3",     _BIT + "c/group_norm"),
    Row("std_conv",   _OURS + "conv_3",     _BIT + "c/standardized_conv2d"),
    Row("std_conv",   _OURS + "conv_proj",  _BIT + "a/proj/standardized_conv2d"),
    Row("group_norm", "norm",               "resnet/group_norm"),
    Row("pixel_head", "head",               "resnet/head/conv2d"),
)
# fmt: on

SQRT = {"standardization": "sqrt_var_plus_eps", "group_norm_epsilon": 1e-5}
PIXELS = {"interpolation": "bilinear", "antialias": False}
# big_transfer, the files of the paper.
BIT = Layout(
    "bit",
    "tensorflow",
    BIT_ROWS,
    marks=(_ROOT + "/kernel",),
    defaults={
        **SQRT,
        **PIXELS,
        "conv_epsilon": 1e-10,
        "unit": "pre_activation",
        "conv_padding": "fixed",
        "root_pool": "zero",
    },
)
_HEADS = (
    Row("group_norm", "norm", "norm-pre-head"),
    Row("dense", "head", "head"),
)
# Newer Flax keeps a group norm as (C,).
_FLAT = tuple(
    r._replace(kind=r.kind.replace("group", "flat")) for r in FLAX_TRUNK
)
# big_vision's `bit`: the units of the hybrids, 1.5 rather than 2.
BIT_V1 = Layout(
    "bit_v1",
    "flax",
    (*_FLAT, *_HEADS[1:]),
    marks=("conv_root/kernel", "block1/unit1/conv1/kernel", "head/kernel"),
    prefixes=("params/", "opt/target/", ""),
    defaults={
        **PIXELS,
        "standardization": "std_plus_eps",
        "conv_epsilon": 1e-5,
        "group_norm_epsilon": 1e-6,
        "unit": "post_activation",
        "conv_padding": "same",
        "root_pool": "same",
    },
)
# big_vision's `bit_paper`: the arithmetic of the paper but for one maximum.
BIT_BIG_VISION = with_names(
    BIT_V1._replace(rows=(*FLAX_TRUNK, *_HEADS)),
    "bit_big_vision",
    {"conv_root": "root_block/conv_root", "{u1}": "{u1:02d}"},
)._replace(
    marks=("root_block/conv_root/kernel",),
    defaults={**BIT.defaults, "root_pool": "minus_infinity"},
)
BIT_TIMM = Layout(
    "bit_timm",
    "torch",
    (
        *TIMM_TRUNK,
        Row("group_norm", "norm", "norm"),
        Row("pixel_head", "head", "head.fc"),
    ),
    marks=("stem.conv.weight", "stages.0.blocks.0.conv1.weight"),
    defaults={**BIT.defaults, "conv_epsilon": 1e-8, "antialias": True},
)
BITS = {x.name: x for x in (BIT, BIT_BIG_VISION, BIT_V1, BIT_TIMM)}


class Trunk(typing.NamedTuple):
    """What a hybrid has beside the rows of a ViT's layout."""

    rows: tuple[Row, ...]
    marks: tuple[str, ...]  # one is enough
    defaults: dict = {}


_FLAX_HYBRID = Trunk(FLAX_TRUNK, ("conv_root/kernel",))
_BACKBONE = "patch_embed.backbone."
# Layout of a ViT -> its hybrids.
TRUNKS = {
    "google": _FLAX_HYBRID,
    "google_linen": _FLAX_HYBRID,
    "big_vision": _FLAX_HYBRID,
    "timm": Trunk(
        tuple(r._replace(theirs=f"{_BACKBONE}{r.theirs}") for r in TIMM_TRUNK),
        (f"{_BACKBONE}stem.conv.weight", f"{_BACKBONE}conv.weight"),
        {**SQRT, "conv_epsilon": 1e-8},
    ),
}


def with_trunk(
    layout: Layout, prefix: str, tensors: typing.Mapping
) -> tuple[Layout, dict]:
    """Returns a layout for a file with a ResNet in it, and what that is.

    Args:
        layout: One of `BITS`, or that of the ViT.
        prefix: Before every name of the file.
        tensors: Name to tensor of the file.

    Returns:
        The layout with the rows of all units, and fields of `TrunkConfig`;
        the layout as it is and no fields where the file has no ResNet.
    """
    trunk = TRUNKS.get(layout.name)
    if trunk and any(prefix + mark in tensors for mark in trunk.marks):
        layout = layout._replace(
            rows=trunk.rows + layout.rows,
            defaults={**layout.defaults, **trunk.defaults},
        )
    elif layout.name not in BITS:
        return layout, {}
    stages = _stages(layout, prefix, tensors)
    layout = spelled_out(layout, stages)
    fields = {"stages": stages, **_width(layout, prefix, tensors)}
    return layout, fields


def spelled_out(layout: Layout, stages: tuple[int, ...]) -> Layout:
    """Returns the layout with one row for each unit of these stages."""
    rows = []
    for row in layout.rows:
        if "{s}" not in row.ours:
            rows.append(row)
            continue
        for s, units in enumerate(stages):
            for u in range(units):
                count = {"s": s, "u": u, "s1": s + 1, "u1": u + 1}
                ours, theirs = (
                    name.format(**count) for name in (row.ours, row.theirs)
                )
                rows.append(row._replace(ours=ours, theirs=theirs))
    return layout._replace(rows=tuple(rows))


def saving_layout(layout: Layout, stages: tuple[int, ...] | None) -> Layout:
    """Returns the layout that saves a model with these stages."""
    trunk = TRUNKS.get(layout.name)
    if trunk and stages is not None:
        layout = layout._replace(rows=trunk.rows + layout.rows)
    return spelled_out(layout, stages or ())


def _stages(layout, prefix, tensors):
    """Units of each stage, counted from the names.

    Raises:
        ValueError: A unit in the middle is missing.
    """
    row = next(r for r in layout.rows if r.ours == _OURS + "conv_1")
    pattern = re.escape(prefix + str(row.theirs))
    pattern = re.sub(r"\\\{[su]1?(:02d)?\\\}", r"(\\d+)", pattern)
    found = {tuple(map(int, m.groups())) for m in _matches(pattern, tensors)}
    first = 0 if layout.dialect == "torch" else 1
    stages = []
    while (first + len(stages), first) in found:
        s = first + len(stages)
        stages.append(sum(stage == s for stage, _ in found))
    expected = {
        (first + s, first + u) for s, n in enumerate(stages) for u in range(n)
    }
    if found != expected:
        raise ValueError(
            f"This file is not whole. Expected: stages and their units "
            f"without a gap. Received: (stage, unit) {sorted(found)}."
        )
    return tuple(stages)


def _matches(pattern, names):
    return filter(None, (re.match(pattern, name) for name in names))


def _width(layout, prefix, tensors):
    suffix = "kernel" if layout.dialect != "torch" else "weight"
    between = "." if layout.dialect == "torch" else "/"
    for row in layout.rows:
        name = f"{prefix}{row.theirs}{between}{suffix}"
        if row.ours == "root/conv" and name in tensors:
            shape = tensors[name].shape
            return {"trunk_width": shape[0 if between == "." else -1]}
    return {}


def unnumbered(tensors: typing.Mapping) -> typing.Mapping:
    """Returns tensors without the numbers that TensorFlow gave the layers.

    Some files of big_transfer's have `standardized_conv2d_7` for
    `standardized_conv2d`.
    """
    if not any(name.startswith("resnet/") for name in tensors):
        return tensors
    return {
        re.sub(r"(standardized_conv2d|group_norm)_\d+", r"\1", name): tensor
        for name, tensor in tensors.items()
    }

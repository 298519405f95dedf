"""The architecture of a checkpoint, from its names and shapes.

What no file says comes from the folder's own config, the caller or the
defaults of the family; the report tells which.
"""

import math
import typing

from keras_vit.config import ViTConfig
from keras_vit.config_parts import StemConfig
from keras_vit.config_parts import TrunkConfig
from keras_vit.resnet_config import ResNetConfig
from keras_vit.weights.detect import count_blocks
from keras_vit.weights.layouts import Layout
from keras_vit.weights.resnet_layouts import BITS
from keras_vit.weights.transforms import rules_of

# Heads by width, of the sizes of the field; else 64 channels a head.
HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


class Reading(typing.NamedTuple):
    """A file seen through a layout: what is under our names in it.

    `trunk` are fields of `TrunkConfig`, empty without a ResNet.
    """

    layout: Layout
    prefix: str
    tensors: typing.Mapping[str, typing.Any]
    trunk: dict = {}

    def name(self, theirs):
        """The full name of one of the layout's names."""
        return theirs[1:] if theirs[0] == "^" else self.prefix + theirs

    def shapes(self, ours):
        """Shapes of the tensors of our variable, or `None` without them."""
        for rule in rules_of(self.layout, 1):
            names = list(map(self.name, rule.theirs))
            if ours in rule.ours and all(n in self.tensors for n in names):
                return [tuple(self.tensors[n].shape) for n in names]
        return None

    def has(self, ours):
        """Whether the file has our variable."""
        return self.shapes(ours) is not None


def describe(reading: Reading, facts: dict) -> ViTConfig | ResNetConfig:
    """Returns the config of a file.

    Args:
        reading: The file.
        facts: Fields of the config that outrank the defaults of the family.

    Raises:
        ValueError: The file lacks a needed tensor, or cannot say something
            that `facts` does not say either.
    """
    if reading.layout.name in BITS:
        return _describe_resnet(reading, facts)
    names = reading.tensors.keys()
    depth = count_blocks(reading.layout, reading.prefix, names)
    patch, width = _stem(reading)
    traits = _traits(reading, width)
    known = {
        **reading.layout.defaults,
        **traits,
        **_head(reading, width),
        **facts,
    }
    _check_lacks(reading, known, facts)
    if traits["num_registers"] and "resampling" not in facts:
        known["resampling"] = "bicubic_antialias"  # As all of DINOv2's have.
    if traits.get("activation"):  # The shapes outrank a config here.
        known["activation"] = traits["activation"]
    trunk = TrunkConfig(**reading.trunk)
    stride = (trunk.stride * patch[0], trunk.stride * patch[1])
    known.update(_grid(reading, known, stride))
    known["num_heads"] = _num_heads(reading, width, known.get("num_heads"))
    size = known.pop("image_size")
    base = ViTConfig(
        image_size=size,
        depth=depth,
        width=width,
        num_heads=known.pop("num_heads"),
        trunk=trunk,
        stem=StemConfig(patch_size=patch),
    )
    return base.replace(**known)


def _describe_resnet(reading, facts):
    bias = reading.shapes("head/bias")
    known = {
        "num_classes": bias[0][0] if bias else 0,
        **reading.layout.defaults,
        **reading.trunk,
        **facts,
    }
    return ResNetConfig().replace(**known)


def _check_lacks(reading, known, facts):
    """Raises if something is missing that only other files can be without.

    A damaged file must not become a model of another architecture.
    """
    clip = reading.layout.defaults.get("head_bias") is False
    needed = {
        "patch_embedding/bias": ("patch_bias", known["norm_pre"]),
        "head/bias": ("head_bias", not known["num_classes"]),
        "position_embedding/grid": ("position", False),
        "class_token/token": ("class_token", False),
        "head/kernel": ("num_classes", not clip),
    }
    for ours, (field, without) in needed.items():
        there = reading.has(ours) or field in facts
        if not there and not without and ours not in reading.layout.lacks:
            raise ValueError(
                f"This file is not whole. Expected: a tensor for {ours}, as "
                f"the {reading.layout.name} layout has it. Received: none. "
                f"Pass {field}=... if the model was trained without."
            )


def _stem(reading):
    shapes = reading.shapes("patch_embedding/kernel")
    if shapes is None or len(shapes[0]) != 4:
        raise ValueError(
            f"This file has no patch projection. Expected: a tensor of four "
            f"axes. Received: shape {shapes and shapes[0]}."
        )
    if reading.layout.dialect == "flax":
        height, across, _, width = shapes[0]
    else:
        width, _, height, across = shapes[0]
    return (height, across), width


def _traits(reading, width):
    """What is seen from which tensors there are."""
    registers = reading.shapes("register_tokens/token")
    hidden = reading.shapes("block_0/mlp/dense_1/kernel")
    back = reading.shapes("block_0/mlp/dense_2/kernel")
    if hidden is None or back is None:
        raise ValueError(
            "This file has no MLP in its first block. Expected: the two "
            "matrices of every block. Received: a file without them."
        )
    twice = math.prod(hidden[0]) == 2 * math.prod(back[0])
    traits = {
        "patch_bias": reading.has("patch_embedding/bias"),
        "class_token": reading.has("class_token/token"),
        "distillation_token": reading.has("distillation_token/token"),
        "num_registers": registers[0][1] if registers else 0,
        "norm_pre": reading.has("norm_pre/gamma"),
        "qkv_bias": reading.has("block_0/attention/qkv/bias"),
        "mlp_dim": math.prod(back[0]) // width,
    }
    if reading.has("block_0/layer_scale_1/gamma"):
        traits["layer_scale"] = 1e-5
    if twice:
        traits["activation"] = "swiglu"
    return traits


def _head(reading, width):
    shapes = reading.shapes("head/kernel")
    flax = reading.layout.dialect == "flax" or reading.layout.name in (
        "openai_clip",
        "open_clip",
    )
    inside, classes = (width, 0)
    if shapes:
        matrix = next((s for s in shapes if len(s) == 2), None)
        if matrix is None:
            raise ValueError(
                f"The head of this file is no matrix. Expected: two axes. "
                f"Received: {', '.join(map(str, shapes))}."
            )
        inside, classes = matrix if flax else matrix[::-1]
    bias = reading.shapes("pre_logits/bias")
    head = {
        "num_classes": classes,
        "pre_logits": bias[0][0] if bias else None,
        "head_bias": reading.has("head/bias") or not classes,
        "distillation_head": reading.has("head_distillation/kernel")
        or not classes
        or not reading.has("distillation_token/token"),
    }
    if reading.has("pooling/probe"):
        head["pooling"] = "map"
    elif inside == 2 * width and not bias:
        head["pooling"] = "token_gap"
    elif not reading.has("class_token/token"):
        head["pooling"] = "gap"
    if reading.name("fc_norm.weight") in reading.tensors:
        head |= {"pooling": "gap", "norm": "after_pooling"}
    elif not reading.has("norm/gamma"):
        head["norm"] = "none"
    return head


def stored_heads(reading: Reading) -> int | None:
    """Returns the heads where they are an axis of their own, as in Flax."""
    shapes = reading.shapes("block_0/attention/qkv/kernel")
    return shapes[0][1] if shapes and len(shapes[0]) == 3 else None


def _num_heads(reading, width, said):
    stored = stored_heads(reading)
    if stored and said not in (None, stored):
        raise ValueError(
            f"This file says how many heads it has. Expected: "
            f"num_heads={stored}, for its width of {width}. Received: "
            f"num_heads={said}. Leave it out, or look for another file."
        )
    if said or stored:
        return said or stored
    heads = HEADS.get(width) or (width // 64 if width % 64 == 0 else None)
    if not heads:
        raise ValueError(
            f"This file does not say how many heads it has. Expected: a width "
            f"of the field, a config.json beside the file or num_heads=... "
            f"Received: width {width}. Pass num_heads."
        )
    return heads


def _grid(reading, known, stride):
    """Image size and prefix positions, from the length of the positions."""
    shapes = reading.shapes("position_embedding/grid")
    size = known.get("image_size")
    if shapes is None:
        if size is None:
            raise ValueError(
                "This file stores no positions and so no image size. "
                "Expected: image_size=... Received: none. Pass it."
            )
        position = known.get("position", "sincos_2d")
        return {"position": position, "prefix_positions": False}
    if len(shapes[0]) < 2:
        raise ValueError(
            f"The positions of this file are no table. Expected: (positions, "
            f"width), with or without a batch axis. Received: {shapes[0]}."
        )
    length = shapes[0][-2]
    prefix = known["class_token"] + known["distillation_token"]
    # With positions of the prefix, without, and with those of registers.
    counts = dict.fromkeys((prefix, 0, prefix + known["num_registers"]))
    if size is not None:
        return _sized(length, counts, prefix, size, stride)
    for count in counts:
        side = math.isqrt(max(length - count, 0))
        if side * side == length - count and side:
            size = (side * stride[0], side * stride[1])
            return {"image_size": size, **_prefixed(count, prefix)}
    raise ValueError(
        f"The grid of this file is not square, and its names do not say more. "
        f"Expected: image_size=(height, width). Received: {length} positions, "
        f"{prefix} prefix tokens. Pass the image size that it was trained at."
    )


def _prefixed(count, prefix):
    return {
        "prefix_positions": count > 0,
        "register_positions": count > prefix,
    }


def _sized(length, counts, prefix, size, stride):
    size = (size, size) if isinstance(size, int) else tuple(size)
    patches = (size[0] // stride[0]) * (size[1] // stride[1])
    if length - patches not in counts:
        expected = " or ".join(str(patches + count) for count in counts)
        raise ValueError(
            f"The positions of this file are not of this image size. "
            f"Expected: {expected} positions for image_size={size}. "
            f"Received: {length}. Load the file at its own size, then take "
            f"model.with_image_size({size})."
        )
    return {"image_size": size, **_prefixed(length - patches, prefix)}

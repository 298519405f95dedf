"""How one tensor becomes one variable, and back. Pure NumPy."""

import typing

import numpy as np

from keras_vit.config import ViTConfig

# What a dialect calls our variables, and what stands between layer and name.
SUFFIXES = {
    "torch": (".", {"kernel": "weight", "gamma": "weight", "beta": "bias"}),
    "flax": ("/", {"gamma": "scale", "beta": "bias"}),
    "tensorflow": ("/", {}),
}


class Rule(typing.NamedTuple):
    """Some variables of ours, some tensors of theirs, and both ways between.

    `load(arrays, shapes)` gives arrays for the variables, whose shapes it is
    told; `save(arrays, config)` gives theirs. `when` is `Row.when`.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    when: typing.Callable[[ViTConfig], bool] | None
    load: typing.Callable[[list, list], list]
    save: typing.Callable[[list, ViTConfig], list]


def _one(load, save):
    """Both ways for one variable and one tensor."""
    return (
        lambda arrays, shapes: [load(arrays[0])],
        lambda arrays, config: [save(arrays[0])],
    )


SAME = _one(lambda a: a, lambda a: a)
LINEAR = _one(lambda a: a.T, lambda a: a.T)
CONV = _one(
    lambda a: a.transpose(2, 3, 1, 0), lambda a: a.transpose(3, 2, 0, 1)
)
# Tokens that a layout keeps without the leading axes of size one.
FLAT = (
    lambda arrays, shapes: [arrays[0].reshape(shapes[0])],
    lambda arrays, config: [arrays[0].reshape(-1)],
)


# As Flax kept a group normalisation: (1, 1, 1, C).
SPREAD = (
    lambda arrays, shapes: [arrays[0].reshape(shapes[0])],
    lambda arrays, config: [arrays[0].reshape(1, 1, 1, -1)],
)
# A head that is a convolution over one pixel.
PIXEL_HEAD = _one(lambda a: a[0, 0], lambda a: a[None, None])
TORCH_PIXEL_HEAD = _one(
    lambda a: a[:, :, 0, 0].T, lambda a: a.T[..., None, None]
)


def _split(count):
    """Several matrices side by side in ours, one after the other in theirs."""

    def load(arrays, shapes):
        return [np.concatenate([a.T for a in arrays], axis=-1)]

    def save(arrays, config):
        return [a.T for a in np.split(arrays[0], count, axis=-1)]

    return load, save


def _flax_split(count):
    """The same with heads as an axis: `(D, H, dim)` and `(H, dim)`."""

    def load(arrays, shapes):
        rows = shapes[0][:-1]
        return [np.concatenate([a.reshape(*rows, -1) for a in arrays], -1)]

    def save(arrays, config):
        parts = np.split(arrays[0], count, axis=-1)
        heads = (config.num_heads, config.width // config.num_heads)
        return [a.reshape(*a.shape[:-1], *heads) for a in parts]

    return load, save


FLAX_OUT = (
    lambda arrays, shapes: [arrays[0].reshape(shapes[0])],
    lambda arrays, config: [
        arrays[0].reshape(config.num_heads, -1, arrays[0].shape[-1])
    ],
)
FLAX_HEADS = _flax_split(1)


def _load_probe(arrays, shapes):
    """One in-projection of three into ours of one (query) and two."""
    query, rest = np.split(arrays[0].T, (shapes[0][-1],), axis=-1)
    return [query, rest]


PROBE = (
    _load_probe,
    lambda arrays, config: [np.concatenate(arrays, axis=-1).T],
)


def _load_probed(arrays, shapes):
    """A batch norm without affine and a dense layer, folded into the latter.

    MAE's linear probe; its epsilon is 1e-6.
    """
    mean, variance, weight, bias = arrays
    kernel = (weight / np.sqrt(variance + 1e-6)).T
    return [kernel, bias - mean @ kernel]


def _save_probed(arrays, config):
    kernel, bias = arrays
    zeros = np.zeros(len(kernel), "float32")
    return [zeros, zeros + np.float32(1 - 1e-6), kernel.T, bias]


def _load_positions(arrays, shapes):
    """`(1, prefix + patches, D)` into the variables that the model has."""
    table = arrays[0].reshape(1, -1, arrays[0].shape[-1])
    prefix = shapes[1][1] if len(shapes) > 1 else 0
    parts = [table[:, prefix:].reshape(shapes[0]), table[:, :prefix]]
    return parts[: len(shapes)]


def _save_positions(batch):
    def save(arrays, config):
        grid = arrays[0].reshape(1, -1, arrays[0].shape[-1])
        table = np.concatenate([*arrays[1:], grid], axis=1)
        return [table if batch else table[0]]

    return save


POSITIONS = (_load_positions, _save_positions(batch=True))
FLAT_POSITIONS = (_load_positions, _save_positions(batch=False))

# kind -> the variables of the layer (none: the row names a variable itself)
# and how each of them changes, per dialect.
KINDS = {
    "same": (("",), {"torch": SAME, "flax": SAME}),
    "flat": (("",), {"torch": FLAT, "flax": FLAT}),
    "norm": (("gamma", "beta"), {"torch": SAME, "flax": SAME}),
    "dense": (("kernel", "bias"), {"torch": LINEAR, "flax": SAME}),
    "conv": (("kernel", "bias"), {"torch": CONV, "flax": SAME}),
    "qkv": (("kernel", "bias"), {"torch": _split(3), "flax": _flax_split(3)}),
    "kv": (("kernel", "bias"), {"torch": _split(2), "flax": _flax_split(2)}),
    "heads": (("kernel", "bias"), {"torch": LINEAR, "flax": FLAX_HEADS}),
    "out": (("kernel", "bias"), {"torch": LINEAR, "flax": FLAX_OUT}),
    "std_conv": (
        ("kernel",),
        {"torch": CONV, "flax": SAME, "tensorflow": SAME},
    ),
    "group_norm": (
        ("gamma", "beta"),
        {"torch": SAME, "flax": SPREAD, "tensorflow": SAME},
    ),
    "flat_norm": (("gamma", "beta"), {"flax": FLAT}),
    "pixel_head": (
        ("kernel", "bias"),
        {"torch": TORCH_PIXEL_HEAD, "tensorflow": PIXEL_HEAD},
    ),
}


def rules_of(layout, depth: int) -> list[Rule]:
    """Returns the rows of a layout written out for `depth` blocks."""
    rules = []
    for row in layout.rows:
        for i in range(depth) if "{i}" in row.ours else (0,):
            rules += _rules(row, i, layout.dialect)
    return rules


def _rules(row, i, dialect):
    ours = row.ours.format(i=i)
    names = (row.theirs,) if isinstance(row.theirs, str) else row.theirs
    theirs = [name.format(i=i) for name in names]
    if row.kind in ("positions", "flat_positions"):
        how = POSITIONS if row.kind == "positions" else FLAT_POSITIONS
        both = (f"{ours}/grid", f"{ours}/prefix")
        return [
            Rule(both, tuple(theirs), row.when, *how),
            Rule(both[:1], tuple(theirs), row.when, *how),
        ]
    if row.kind == "probed":
        both = (f"{ours}/kernel", f"{ours}/bias")
        return [Rule(both, tuple(theirs), None, _load_probed, _save_probed)]
    if row.kind == "probe":
        return [
            Rule(
                (f"{ours}/query/{name}", f"{ours}/key_value/{name}"),
                tuple(_join(t, name, dialect) for t in theirs),
                row.when,
                *PROBE,
            )
            for name in ("kernel", "bias")
        ]
    variables, ways = KINDS[row.kind]
    rules = []
    for variable in variables:
        how = _way(row.kind, variable, dialect, ways, len(theirs))
        rules.append(
            Rule(
                (f"{ours}/{variable}" if variable else ours,),
                tuple(_join(t, variable, dialect) for t in theirs),
                row.when,
                *how,
            )
        )
    return rules


def _way(kind, variable, dialect, ways, parts):
    if kind in ("qkv", "kv") and parts == 1:
        return LINEAR  # already one matrix, all of q before k before v
    if kind == "out" and variable == "bias":
        return SAME
    return ways[dialect] if variable != "bias" or kind in FUSED else SAME


FUSED = ("qkv", "kv", "heads")


def _join(name, variable, dialect):
    if not variable:
        return name
    between, suffixes = SUFFIXES[dialect]
    suffix = suffixes.get(variable, variable)
    return name + suffix if name.endswith("_") else name + between + suffix

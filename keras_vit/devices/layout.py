"""How the weights of a ViT are split among devices: one table."""

import keras

# Pattern of a path, and which axis goes along the model side of the mesh.
# Products that widen are split by their columns, products that narrow by their
# rows, so that one sum over the devices ends each pair (Shoeybi et al., 2019,
# section 3). What is not here is small and stays whole on every device.
RULES = (
    (r".*attention/qkv/kernel", (None, "model")),
    (r".*attention/qkv/bias", ("model",)),
    (r".*attention/out/kernel", ("model", None)),
    (r".*mlp/dense_1/kernel", (None, "model")),
    (r".*mlp/dense_1/bias", ("model",)),
    (r".*mlp/dense_2/kernel", ("model", None)),
    (r"patch_embedding/kernel", (None, None, None, "model")),
    (r"position_embedding/grid", (None, None, None, "model")),
    (r"pooling/(query|key_value)/kernel", (None, "model")),
    (r"pooling/out/kernel", ("model", None)),
    (r"pre_logits/kernel", (None, "model")),
    (r"head(_distillation)?/kernel", ("model", None)),
    (r"(root|stage_\d+)/.*kernel", (None, None, None, "model")),
)


def layout_map(mesh):
    """Returns how the weights of a ViT are split along the axis `"model"`.

    Args:
        mesh: A `keras.distribution.DeviceMesh` with an axis `"model"`.

    Returns:
        A `keras.distribution.LayoutMap` for `keras.distribution.ModelParallel`.

    Raises:
        ValueError: The mesh has no such axis.

    References:
        - [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053), section 3
    """
    if "model" not in mesh.axis_names:
        raise ValueError(
            f"Weights are split along an axis of this name. Expected: a mesh "
            f"with an axis 'model'. Received: {list(mesh.axis_names)}."
        )
    layouts = keras.distribution.LayoutMap(mesh)
    for pattern, axes in RULES:
        layouts[pattern] = axes
    return layouts


def check_divisible(path, shape, axes, parts):
    """Raises unless the axis that is split is a multiple of the parts."""
    for size, axis in zip(shape, axes, strict=False):
        if axis == "model" and size % parts:
            raise ValueError(
                f"This weight cannot be split alike. Expected: a multiple of "
                f"model={parts}. Received: {size} in {path} of shape "
                f"{tuple(shape)}. Use a smaller model side that divides the "
                f"width, the heads and the MLP."
            )

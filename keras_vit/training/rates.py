"""Which learning rate and which weight decay each variable gets: two tables."""

import fnmatch
import re

from keras_vit.checks import check_choice

# First match wins. What a row says is the depth of a layer: 0 for what stands
# before the blocks, i + 1 for block i, `None` for what stands after them.
STEM = 0
TABLE = (
    (r"(root|stage_\d+|patch_embedding|position_embedding|norm_pre)/", STEM),
    (r"(class_token|distillation_token|register_tokens|mask_token)/", STEM),
    (r"(?:block|relative_position)_(\d+)/", "block"),
    (r"(norm|pooling|pre_logits|head|head_distillation)/", None),
)


def rate_scales(model, decay, norm="head"):
    """Returns the factor of the learning rate of each variable, by its path.

    `decay ** (depth + 1 - i)`: `i` is 0 for what stands before the blocks,
    `i + 1` for block `i`, `depth + 1` for what stands after them.

    Args:
        model: A `ViT`.
        decay: Float in `(0, 1]`, from one block to the one below it.
        norm: Where the norm between blocks and pooling stands: `"head"`, with
            a factor of 1 as in BEiT and MAE, or `"block"`, with the last
            block as in timm.

    Returns:
        `{path: factor}`.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: A value is out of range, or a variable stands nowhere.
    """
    if not hasattr(model, "blocks"):
        raise TypeError(
            f"Layers decay from block to block. Expected: a keras_vit.ViT. "
            f"Received: a {type(model).__name__}."
        )
    check_choice("norm", norm, ("head", "block"))
    if not 0 < decay <= 1:
        raise ValueError(
            f"The learning rate falls from the head down. Expected: decay in "
            f"(0, 1]. Received: decay={decay!r}."
        )
    depth = model.config.depth
    with_block = norm == "block" and model.config.head.norm == "before_pooling"
    depths = {v.path: _depth(v.path) for v in model.weights}
    lost = [path for path, found in depths.items() if found == "nowhere"]
    if lost:
        raise ValueError(
            f"Some variables stand nowhere in a ViT. Expected: paths of its "
            f"layers. Received: {', '.join(lost[:10])}."
        )
    scales = {}
    for path, layer in depths.items():
        if layer is None:
            layer = depth if with_block and path.startswith("norm/") else None
        exponent = 0 if layer is None else depth + 1 - layer
        scales[path] = float(decay) ** exponent
    return scales


def decayed_paths(model, also=()):
    """Returns the paths of the variables that weight decay shrinks: kernels.

    Biases, gains of norms and of layer scale, tokens, positions and the probe
    of attention pooling are left out.

    Args:
        model: Any model of this package.
        also: Patterns of paths (`"distillation_token/*"`) that are decayed
            although they are no kernels.

    Raises:
        ValueError: A pattern fits nothing.
    """
    paths = [v.path for v in model.weights]
    kernels = {p for p in paths if p.rsplit("/", 1)[-1] == "kernel"}
    for pattern in also:
        more = fnmatch.filter(paths, pattern)
        if not more:
            raise ValueError(
                f"This pattern fits no variable. Expected: one such as "
                f"'distillation_token/*'. Received: {pattern!r}; the model "
                f"has {', '.join(paths[:5])} and {len(paths) - 5} more."
            )
        kernels.update(more)
    return kernels


def _depth(path):
    for pattern, depth in TABLE:
        found = re.match(pattern, path)
        if found:
            return int(found[1]) + 1 if depth == "block" else depth
    return "nowhere"

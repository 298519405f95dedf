"""Fits positions, patch kernels and images to another size.

Every rule of the field is a small matrix per axis, `(new, old)`. Entry
`(i, j)` says how much of source `j` is in output `i`: a kernel of their
distance. Rules differ in the few numbers of the table `RULES`.
"""

import typing

import numpy as np

from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import is_int


class Rule(typing.NamedTuple):
    """What tells one resampling rule from another.

    `kernel` is a name in `KERNELS`, zero from the distance `radius` on;
    `cubic` is the slope of a cubic kernel at distance 1. With `antialias` the
    kernel is widened by `old / new` when shrinking and cut off at the edges;
    without, the outermost source is repeated. `corners` puts the outermost
    outputs on the outermost sources, otherwise both share their outer edges.
    `offset` is added to the new size where that sets the step.
    """

    kernel: str
    radius: int
    cubic: float = 0.0
    antialias: bool = False
    corners: bool = False
    offset: float = 0.0


# fmt: off
RULES = {
    # Google's vision_transformer and big_vision: scipy.ndimage.zoom, order 1.
    "zoom":               Rule("linear", 1, corners=True),
    # FlexiViT's patch kernels; also timm's positions from Google's files.
    "bilinear":           Rule("linear", 1),
    # FlexiViT's positions: jax.image.resize. Pillow's bilinear, too.
    "bilinear_antialias": Rule("linear", 1, antialias=True),
    # MAE, DeiT, and ViT, DeiT and DINOv2 of HF: torch, by size.
    "bicubic":            Rule("cubic", 2, cubic=-0.75),
    # timm, and DINOv2 with registers: torch. Pillow's bicubic, too.
    "bicubic_antialias":  Rule("cubic", 2, cubic=-0.5, antialias=True),
    # DINO and DINOv2: torch, by a scale factor of (new + 0.1) / old.
    "dino":               Rule("cubic", 2, cubic=-0.75, offset=0.1),
    # Pillow, for images.
    "nearest":            Rule("box", 1),
    "lanczos":            Rule("lanczos", 3, antialias=True),
}
# fmt: on


def resize_matrix(old, new, rule, xp=np):
    """Returns the matrix that resamples one axis by a rule.

    With shared edges output `i` stands at source `(i + 1/2) old / new - 1/2`,
    with shared corners at `i (old - 1) / (new - 1)`. Its distance to each
    source goes through the kernel, and every row is scaled to sum to one.

    Args:
        old: Int, sources along the axis.
        new: Int, outputs along the axis. With `xp=keras.ops` it may be an
            integer scalar tensor that is known only when the graph runs.
        rule: A key of `RULES`.
        xp: `numpy` (in float64, then rounded) or `keras.ops` (in float32).

    Returns:
        float32 array or tensor, `(new, old)`.

    References:
        - [Keys, 1981](https://doi.org/10.1109/TASSP.1981.1163711) (cubic)
    """
    check_choice("rule", rule, RULES)
    check_at_least("old", old, 1)
    if xp is np:
        check_at_least("new", new, 1)
    rule = RULES[rule]
    real = "float64" if xp is np else "float32"
    pad = 0 if rule.antialias else rule.radius  # repeats of each edge
    shift = 0.0 if rule.corners else 0.5
    span = old - int(rule.corners)
    # A single output stands on the first source.
    size = xp.maximum(xp.array(new, dtype=real) - int(rule.corners), 1.0)
    output = xp.arange(new, dtype=real)[:, None] + shift
    source = xp.arange(-pad, old + pad, dtype=real)[None] + shift
    unit = xp.maximum(size, span) if rule.antialias else size + rule.offset
    # The first difference is exact, which keeps float32 near float64.
    distance = (output * span - source * size) / unit
    distance = distance - source * (rule.offset / unit)
    weights = KERNELS[rule.kernel](distance, rule, xp)
    weights = _fold_edges(weights, pad, old, xp)
    weights = weights / xp.sum(weights, axis=1, keepdims=True)
    return xp.array(weights, dtype="float32")


def _fold_edges(weights, pad, old, xp):
    """Adds what falls outside to the outermost sources: `(new, old)`."""
    before = xp.sum(weights[:, :pad], axis=1, keepdims=True)
    after = xp.sum(weights[:, pad + old :], axis=1, keepdims=True)
    source = xp.arange(old)[None]
    edges = xp.where(source == 0, before, 0.0)
    edges = edges + xp.where(source == old - 1, after, 0.0)
    return weights[:, pad : pad + old] + edges


def _box(t, rule, xp):
    t = t + 1e-5  # a tie goes to one side however the division is rounded
    return xp.where((t >= -0.5) & (t < 0.5), xp.ones_like(t), 0.0)


def _linear(t, rule, xp):
    return xp.maximum(1.0 - xp.abs(t), 0.0)


def _cubic(t, rule, xp):
    t, a = xp.abs(t), rule.cubic
    inner = (1.0 - t) * (1.0 + t - (a + 2.0) * t * t)
    outer = a * (t - 1.0) * (t - 2.0) * (t - 2.0)
    return xp.where(t < 1.0, inner, xp.where(t < 2.0, outer, 0.0))


def _lanczos(t, rule, xp):
    # Clear of 0 / 0, whose limit is 1.
    x = np.pi * xp.maximum(xp.abs(t), 1e-6)
    waves = rule.radius * xp.sin(x) * xp.sin(x / rule.radius) / (x * x)
    return xp.where(xp.abs(t) < rule.radius, waves, 0.0)


KERNELS = {"box": _box, "linear": _linear, "cubic": _cubic, "lanczos": _lanczos}


def resample(table, grid, rule):
    """Fits a table of positions to another grid.

    When enlarging, rules other than `"zoom"` place the outermost outputs
    outside the outermost sources, where the edge is repeated (or left out), so
    outputs at the rim are more alike. `"zoom"` has no such rim, but moves
    positions off the places they were trained for, by up to half a patch.

    Args:
        table: Array `([1,] rows, columns, width)` of any floating type.
        grid: `(rows, columns)` wanted.
        rule: A key of `RULES`, best that of the checkpoint's origin.

    Returns:
        Array `([1,] *grid, width)` in the type of `table`, computed in
        float32. The very table if it has that grid.

    Raises:
        ValueError: Unknown rule, or a table or grid of another form.
        TypeError: The table holds integers.

    Example:
    ```python
    table = np.random.normal(size=(14, 14, 768))
    keras_vit.resample(table, (24, 32), "bicubic").shape  # (24, 32, 768)
    ```
    """
    table = np.asarray(table)
    check_choice("rule", rule, RULES)
    rows, columns = _as_grid("grid", grid)
    if table.ndim < 3:
        raise ValueError(
            f"A table has a grid. Expected: (rows, columns, width). Received: "
            f"{table.shape}. Split off prefix tokens and reshape the rest."
        )
    if table.dtype.kind in "iub":
        raise TypeError(
            f"Resampled values are not whole. Expected: a floating type. "
            f"Received: {table.dtype}. Cast before, and round after."
        )
    if table.shape[-3:-1] == (rows, columns):
        return table
    by_row = resize_matrix(table.shape[-3], rows, rule)
    by_column = resize_matrix(table.shape[-2], columns, rule)
    return _apply(by_row, by_column, table)


def resize_patch_kernel(kernel, patch_size, rule="bilinear"):
    """Fits a patch projection to another patch size, as FlexiViT does.

    If `B` resizes a patch, the kernel wanted is the one whose product with
    the resized patch is nearest to that of the given kernel with the patch:
    `pinv(B^T) w`. When the patch grows the two are equal, so tokens stay what
    they were. `B` is the Kronecker product of a matrix per axis, and so is
    its pseudo-inverse. Per axis it is well conditioned, also where one side
    shrinks and the other grows, which makes `B` itself rank deficient.

    Args:
        kernel: Array `(height, width, channels, features)`.
        patch_size: `(height, width)` wanted, in pixels.
        rule: A key of `RULES`: `"bilinear"` (FlexiViT's own) or
            `"bicubic_antialias"` (timm's).

    Returns:
        Array `(*patch_size, channels, features)` in the type of `kernel`,
        computed in float32. The very kernel if it has that size.

    Raises:
        ValueError: Unknown rule, or a kernel or patch size of another form.

    References:
        - [Beyer et al., 2023](https://arxiv.org/abs/2212.08013), section 3.4
    """
    kernel = np.asarray(kernel)
    check_choice("rule", rule, RULES)
    size = _as_grid("patch_size", patch_size)
    if kernel.ndim != 4:
        raise ValueError(
            f"A patch kernel has four axes. Expected: (height, width, "
            f"channels, features). Received: {kernel.shape}. Reshape it."
        )
    if kernel.shape[:2] == size:
        return kernel
    by_row = np.linalg.pinv(resize_matrix(kernel.shape[0], size[0], rule).T)
    by_column = np.linalg.pinv(resize_matrix(kernel.shape[1], size[1], rule).T)
    table = kernel.reshape(*kernel.shape[:2], -1)
    return _apply(by_row, by_column, table).reshape(*size, *kernel.shape[2:])


def _apply(rows, columns, table):
    """A matrix per axis on `(..., rows, columns, width)`, in float32."""
    x = table.astype("float32")
    *lead, old, old_columns, width = x.shape
    x = rows @ x.reshape(*lead, old, old_columns * width)
    x = columns @ x.reshape(*lead, len(rows), old_columns, width)
    return x.astype(table.dtype)


def _as_grid(name, value):
    pair = tuple(np.ravel(value))
    if len(pair) != 2 or not all(is_int(v) and v > 0 for v in pair):
        raise ValueError(
            f"`{name}` is a size. Expected: a pair of positive ints, rows (or "
            f"height) first. Received: {name}={value!r}."
        )
    return int(pair[0]), int(pair[1])


def sincos_axis(length, channels, temperature=1e4, flavour="moco_v3", xp=np):
    """Returns sine and cosine waves along one axis.

    Args:
        length: Int, places; with `xp=keras.ops` also a scalar tensor.
        channels: Even int.
        temperature: Float. Radians per place fall from 1 to its inverse.
        flavour: `"moco_v3"` reaches that end, `"mae"` stops a step short.
        xp: `numpy` or `keras.ops`.

    Returns:
        float32 `(length, channels)`: all sines, then all cosines.
    """
    check_choice("flavour", flavour, ("moco_v3", "mae"))
    real = "float64" if xp is np else "float32"
    count = channels // 2
    steps = max(count - 1, 1) if flavour == "moco_v3" else count
    omega = np.power(float(temperature), -np.arange(count) / steps)
    place = xp.arange(length, dtype=real)[:, None]
    angle = place * xp.array(omega[None], dtype=real)
    waves = xp.concatenate([xp.sin(angle), xp.cos(angle)], axis=1)
    return xp.array(waves, dtype="float32")


def sincos_2d(rows, columns, width, temperature=1e4, flavour="moco_v3"):
    """Returns fixed positions: `sincos_axis` of the column, then of the row.

    Args:
        rows: Int.
        columns: Int.
        width: Int, a multiple of 4.
        temperature: Float, as for `sincos_axis`.
        flavour: `"moco_v3"` (also big_vision's) or `"mae"`.

    Returns:
        float32 array, `(rows, columns, width)`, values in -1..1.

    Raises:
        ValueError: A count that is no count, or `width` no multiple of 4.

    References:
        - [Chen et al., 2021](https://arxiv.org/abs/2104.02057)
        - [He et al., 2022](https://arxiv.org/abs/2111.06377) (`"mae"`)
    """
    for name, value in (("rows", rows), ("columns", columns), ("width", width)):
        check_at_least(name, value, 1)
    if width % 4:
        raise ValueError(
            f"Sine and cosine of row and column are equal parts of the width. "
            f"Expected: a multiple of 4. Received: width={width}. The next is "
            f"{width + -width % 4}."
        )
    column = sincos_axis(columns, width // 2, temperature, flavour)[None]
    row = sincos_axis(rows, width // 2, temperature, flavour)[:, None]
    shape = (rows, columns, width // 2)
    parts = [np.broadcast_to(part, shape) for part in (column, row)]
    return np.concatenate(parts, axis=-1)

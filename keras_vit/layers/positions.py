"""What tells patches apart by where they stand, at any grid."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers.initializers import initial
from keras_vit.resampling import RULES
from keras_vit.resampling import resize_matrix
from keras_vit.resampling import sincos_axis

# position -> equal parts that it cuts the width into
WIDTH_PARTS = {"learned": 1, "learned_2d": 2, "sincos_2d": 4}


class _GridLayer(keras.layers.Layer):
    """Something stored for a grid of patches, resampled for any other one."""

    def __init__(self, grid, resampling, **kwargs):
        super().__init__(**kwargs)
        check_choice("resampling", resampling, RULES)
        self.grid = tuple(grid)
        self.resampling = resampling

    def _fit(self, table, sizes, axis=0):
        """Resamples axes of `table`, from `axis` on, to the sizes given.

        In float32. A table that has these sizes already stays as it is: not
        every rule is the identity on its own grid (`dino`).
        """
        stored = table.shape[axis : axis + len(sizes)]
        same = [new == old for new, old in zip(sizes, stored, strict=True)]
        known = all(isinstance(new, int) for new in sizes)
        if known and all(same):
            return table
        table = ops.cast(table, "float32")
        for i, (old, new) in enumerate(zip(stored, sizes, strict=True)):
            if known:
                matrix = resize_matrix(old, new, self.resampling)
            else:
                matrix = resize_matrix(old, new, self.resampling, xp=ops)
                unchanged = ops.all(ops.stack([*map(ops.array, same)]))
                matrix = ops.where(unchanged, ops.eye(new, old), matrix)
            table = ops.tensordot(matrix, table, ((1,), (axis + i,)))
            table = ops.moveaxis(table, 0, axis + i)
        return table

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "resampling": self.resampling,
        }


@keras.saving.register_keras_serializable("keras_vit")
class PositionEmbedding(_GridLayer):
    """Adds to each token where it stands.

    Positions are stored for a grid of `(rows, columns)` patches, apart from
    those of the prefix. Prefix tokens beyond `num_prefix_positions` and all
    of them for `"sincos_2d"` get none.

    Args:
        grid: `(rows, columns)` of the stored positions.
        position: `"learned"` (one vector per patch), `"learned_2d"` (half of
            the width per row and column, paper D.4) or `"sincos_2d"` (fixed).
        num_prefix: Int, tokens in front of the patches.
        num_prefix_positions: Int, how many of them have a position.
        resampling: Rule of `keras_vit.resample` for another grid.

    Call arguments:
        x: `(batch, num_prefix + patches, width)`.
        patches: Optional `(batch, rows, columns, width)`, read for its grid
            only. Without it the grid is the stored one.

    Output shape:
        That of `x`.

    Raises:
        ValueError: Unknown `position` or `resampling`, a width that the kind
            of position cannot be cut into, or tokens that are not those of
            the stored grid.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          sections 3.1, 3.2 and D.4
        - [Chen et al., 2021](https://arxiv.org/abs/2104.02057) (sincos_2d)
    """

    def __init__(
        self,
        grid,
        position="learned",
        num_prefix=0,
        num_prefix_positions=0,
        resampling="bicubic_antialias",
        **kwargs,
    ):
        super().__init__(grid, resampling, **kwargs)
        check_choice("position", position, WIDTH_PARTS)
        self.position = position
        self.num_prefix = num_prefix
        self.num_prefix_positions = num_prefix_positions

    def build(self, x_shape, patches_shape=None):
        rows, columns = self.grid
        self._width = width = x_shape[-1]
        parts = WIDTH_PARTS[self.position]
        if width % parts:
            raise ValueError(
                f"Positions {self.position!r} cut the width into equal parts. "
                f"Expected: a multiple of {parts}. Received: width={width}. "
                f"The next is {width + -width % parts}."
            )
        shapes = {
            "learned": {"grid": (1, rows, columns, width)},
            "learned_2d": {
                "rows": (rows, width // 2),
                "columns": (columns, width // 2),
            },
            "sincos_2d": {},
        }[self.position]
        if self.num_prefix_positions:
            shapes["prefix"] = (1, self.num_prefix_positions, width)
        self.tables = {
            name: self.add_weight(
                shape=shape,
                initializer=initial(
                    keras.initializers.RandomNormal(stddev=0.02)
                ),
                autocast=False,  # resampled in float32
                name=name,
            )
            for name, shape in shapes.items()
        }

    def call(self, x, patches=None):
        if patches is None:
            self._check_tokens(x.shape[1])
        shape = self.grid if patches is None else ops.shape(patches)[1:3]
        table = ops.reshape(self.patch_positions(*shape), (1, -1, self._width))
        parts = [ops.cast(table, x.dtype)]
        without = self.num_prefix - self.num_prefix_positions
        if without:
            parts.insert(0, ops.zeros((1, without, self._width), x.dtype))
        if self.num_prefix_positions:
            parts.insert(0, ops.cast(self.tables["prefix"], x.dtype))
        return x + ops.concatenate(parts, axis=1)

    def _check_tokens(self, tokens):
        rows, columns = self.grid
        expected = self.num_prefix + rows * columns
        if tokens not in (None, expected):
            raise ValueError(
                f"Every token has its place. Expected: {expected} tokens, "
                f"{self.num_prefix} of the prefix and {rows}x{columns} "
                f"patches. Received: {tokens}. Hand in `patches` as well to "
                f"fit the positions to their grid."
            )

    def patch_positions(self, rows, columns):
        """Positions of the patches, `(rows, columns, width)`."""
        if self.position == "learned":
            return self._fit(self.tables["grid"], (rows, columns), 1)[0]
        half = self._width // 2
        if self.position == "learned_2d":
            by_row = self._fit(self.tables["rows"], (rows,))
            by_column = self._fit(self.tables["columns"], (columns,))
            parts = [by_row[:, None], by_column[None]]
        else:
            # In MoCo v3's order the column comes first.
            parts = [
                sincos_axis(columns, half, xp=ops)[None],
                sincos_axis(rows, half, xp=ops)[:, None],
            ]
        shape = (rows, columns, half)
        return ops.concatenate(
            [ops.broadcast_to(part, shape) for part in parts], axis=-1
        )

    def compute_output_shape(self, x_shape, patches_shape=None):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "position": self.position,
            "num_prefix": self.num_prefix,
            "num_prefix_positions": self.num_prefix_positions,
        }


@keras.saving.register_keras_serializable("keras_vit")
class RelativePosition(_GridLayer):
    """A learned bias of the attention scores per head and patch offset.

    Query patch `(r, c)` and key patch `(r', c')` share the entry of
    `(r - r', c - c')`; pairs with a prefix token share one of three entries
    (patch to prefix, prefix to patch, prefix to prefix).

    Args:
        grid: `(rows, columns)` of patches that the table is stored for; the
            table has `(2 rows - 1, 2 columns - 1)` offsets.
        num_heads: Int.
        num_prefix: Int, tokens in front of the patches.
        resampling: Rule of `keras_vit.resample` for another grid.

    Input shape:
        `(batch, rows, columns, width)`, read for its grid only.

    Output shape:
        `(num_heads, tokens, tokens)`, queries first, prefix included.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), D.4
        - [Shaw et al., 2018](https://arxiv.org/abs/1803.02155)
    """

    def __init__(
        self,
        grid,
        num_heads,
        num_prefix=0,
        resampling="bicubic_antialias",
        **kwargs,
    ):
        super().__init__(grid, resampling, **kwargs)
        self.num_heads = num_heads
        self.num_prefix = num_prefix

    def build(self, input_shape):
        rows, columns = self.grid
        self.table = self.add_weight(
            shape=(2 * rows - 1, 2 * columns - 1, self.num_heads),
            initializer="zeros",
            autocast=False,  # resampled in float32
            name="table",
        )
        if self.num_prefix:
            self.prefix = self.add_weight(
                shape=(3, self.num_heads),
                initializer="zeros",
                autocast=False,
                name="prefix",
            )

    def call(self, patches):
        rows, columns = ops.shape(patches)[1:3]
        offsets = (2 * rows - 1, 2 * columns - 1)
        table = self._fit(self.table, offsets)
        # Flat, for a dense gradient: that of a gather from a variable comes in
        # slices on TensorFlow, and Adam squares two slices of one row apart.
        table = ops.transpose(ops.reshape(table, (-1, self.num_heads)))
        down, across = _offsets(rows), _offsets(columns)
        index = down[:, None, :, None] * offsets[1] + across[None, :, None]
        n = rows * columns
        bias = ops.take(table, ops.reshape(index, (n, n)), axis=1)
        return self._with_prefix(bias, n) if self.num_prefix else bias

    def _with_prefix(self, bias, n):
        heads, k = self.num_heads, self.num_prefix
        to_prefix, to_patch, among = (
            ops.reshape(self.prefix[i], (heads, 1, 1)) for i in range(3)
        )
        top = ops.concatenate(
            [
                ops.broadcast_to(among, (heads, k, k)),
                ops.broadcast_to(to_patch, (heads, k, n)),
            ],
            axis=2,
        )
        left = ops.broadcast_to(to_prefix, (heads, n, k))
        below = ops.concatenate([left, bias], axis=2)
        return ops.concatenate([top, below], axis=1)

    def compute_output_shape(self, input_shape):
        _, rows, columns, _ = input_shape
        known = rows is not None and columns is not None
        tokens = self.num_prefix + rows * columns if known else None
        return (self.num_heads, tokens, tokens)

    def compute_output_spec(self, patches):
        shape = self.compute_output_shape(patches.shape)
        return keras.KerasTensor(shape, "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_prefix": self.num_prefix,
        }


def _offsets(n):
    """Index of `query - key` in a table of `2 n - 1` offsets, `(n, n)`."""
    i = ops.arange(n)
    return i[:, None] - i[None] + n - 1

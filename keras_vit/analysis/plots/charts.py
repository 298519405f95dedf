"""Charts of numbers: heads by depth, CKA, training curves."""

import numpy as np

from keras_vit.analysis.plots.canvas import BLUE
from keras_vit.analysis.plots.canvas import COLOURS
from keras_vit.analysis.plots.canvas import GRAY
from keras_vit.analysis.plots.canvas import INK
from keras_vit.analysis.plots.canvas import MAP
from keras_vit.analysis.plots.canvas import chart_axis
from keras_vit.analysis.plots.canvas import heat_scale
from keras_vit.analysis.plots.canvas import new_figure
from keras_vit.analysis.plots.canvas import shortened
from keras_vit.analysis.plots.canvas import style_axis


def heads_figure(values, label="mean attention distance (pixels)", most=None):
    """Draws a number of each head against depth.

    Figure 7, right: one dot per head and a line through their means.

    Args:
        values: `(depth, heads)`, of `attention_distance` or
            `attention_entropy`.
        label: What the numbers are, with their unit.
        most: Optional number that attention spread evenly would give, drawn
            as a dashed line.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    values = np.asarray(values)
    depth, heads = values.shape
    figure = new_figure(7.6, 4.8)
    axis = chart_axis(figure, "", "block", label)
    blocks = np.arange(1, depth + 1)
    # A line through one point is no line.
    marker = "D" if depth == 1 else None
    means = values.mean(axis=1)
    axis.plot(blocks, means, color=BLUE, lw=2, marker=marker, label="mean")
    axis.scatter(
        np.repeat(blocks, heads),
        values.ravel(),
        s=42,
        color=BLUE,
        alpha=0.45,
        linewidth=0,
        label=f"one of {heads} heads",
        zorder=3,
    )
    if most is not None:
        axis.axhline(most, color=GRAY, lw=1.2, ls="--", label="spread evenly")
    axis.set_ylim(0, 1.08 * max(values.max(), most or 0, 1e-6))
    axis.set_xticks(blocks[:: max(1, depth // 12)])
    axis.legend(frameon=False, fontsize=12, labelcolor=INK, loc="best")
    return figure


def cka_figure(matrix, rows="model", columns=None):
    """Draws how alike the layers of two models see.

    Args:
        matrix: `(layers, layers)`, of `layer_cka`.
        rows: Name of the model of the rows.
        columns: Name of the model of the columns; that of the rows by
            default.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    matrix = np.asarray(matrix)
    tall, wide = matrix.shape
    height = 5.2 * min(max(tall / wide, 0.5), 1.6) + 0.2
    figure = new_figure(6.4, height)
    axis = figure.subplots()
    picture = axis.imshow(matrix, cmap=MAP, vmin=0, vmax=1, origin="lower")
    for name, ticks, count in (
        (f"{shortened(columns or rows, 38)}: layer", axis.set_xticks, wide),
        (f"{shortened(rows, int(7 * height))}: layer", axis.set_yticks, tall),
    ):
        places = range(0, count, max(1, count // 12))
        ticks(places, [str(i + 1) for i in places], fontsize=11, color=GRAY)
        label = axis.set_xlabel if ticks == axis.set_xticks else axis.set_ylabel
        label(name, fontsize=13, color=INK)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if max(tall, wide) <= 12:
        _write_values(axis, matrix)
    heat_scale(figure, picture, axis, "linear CKA", (0, 0.5, 1))
    return figure


def _write_values(axis, matrix):
    for (row, column), value in np.ndenumerate(matrix):
        axis.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=10,
            color="0.1" if value > 0.6 else "0.95",
        )


def curves_figure(history, title=""):
    """Draws the loss and the metrics of a training run.

    Args:
        history: `{name: [value per epoch]}`, such as `fit(...).history`. What
            is named `val_...` shares the panel of what it validates.
        title: Optional text above.

    Returns:
        A `matplotlib.figure.Figure`, one panel per metric, epochs from 1.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: There is nothing to draw.
    """
    panels = {}
    for name, numbers in history.items():
        if len(numbers):
            panels.setdefault(name.removeprefix("val_"), {})[name] = numbers
    if not panels:
        raise ValueError(
            f"There is nothing to draw. Expected: a history of at least one "
            f"epoch. Received: {dict(history)}."
        )
    columns = min(2, len(panels))  # more would be too small on a slide
    rows = -(-len(panels) // columns)
    figure = new_figure(5.4 * columns + 0.6, 4.0 * rows + 0.4)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.suptitle(title, fontsize=15, color=INK, x=0.01, ha="left")
    for axis in axes[len(panels) :]:
        axis.remove()
    for axis, (name, curves) in zip(axes, panels.items(), strict=False):
        style_axis(axis, "", "epoch", name.replace("_", " "))
        for key, colour in zip(sorted(curves), COLOURS, strict=False):
            kind = "validation" if key.startswith("val_") else "training"
            _draw_curve(axis, curves[key], kind, colour)
        if len(curves) > 1:
            axis.legend(frameon=False, fontsize=12, labelcolor=INK)
        axis.margins(x=0.03)
    return figure


def _draw_curve(axis, numbers, label, colour):
    epochs = np.arange(1, len(numbers) + 1)
    marker = "o" if len(numbers) <= 40 else None
    axis.plot(
        epochs, numbers, color=colour, lw=2, marker=marker, ms=4, label=label
    )
    if len(numbers) <= 12:
        axis.set_xticks(epochs)

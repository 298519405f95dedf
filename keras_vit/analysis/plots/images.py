"""Pictures made of pictures: overlays, filters, similarities."""

import math

import numpy as np

from keras_vit.analysis.plots.canvas import BLUE
from keras_vit.analysis.plots.canvas import GRAY
from keras_vit.analysis.plots.canvas import INK
from keras_vit.analysis.plots.canvas import MAP
from keras_vit.analysis.plots.canvas import as_pixels
from keras_vit.analysis.plots.canvas import heat_scale
from keras_vit.analysis.plots.canvas import new_figure
from keras_vit.analysis.plots.canvas import overlay
from keras_vit.analysis.plots.canvas import overlay_scale
from keras_vit.analysis.plots.canvas import shortened


def prediction_figure(images, maps, answers):
    """Draws each image, what the model looked at, and its best guesses.

    Args:
        images: `(n, height, width, 3)`, 0..255.
        maps: `(n, rows, columns)`, for example of `attention_rollout`.
        answers: Per image `[(label, probability), ...]`, best first.

    Returns:
        A `matplotlib.figure.Figure`, one column per image.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The numbers of images, maps and answers differ.
    """
    images = list(images)
    _check_counts(images=images, maps=maps, answers=answers)
    tall = 1.9 * images[0].shape[0] / images[0].shape[1]
    bars = 0.42 * max(map(len, answers)) + 0.4
    figure = new_figure(2.1 * len(images) + 0.4, 2 * tall + bars + 0.5)
    axes = figure.subplots(
        3, len(images), height_ratios=(tall, tall, bars), squeeze=False
    )
    for column, image, grid, best in zip(
        axes.T, images, maps, answers, strict=True
    ):
        column[0].imshow(as_pixels(image))
        column[1].imshow(overlay(image, grid))
        for axis in column[:2]:
            axis.set_axis_off()
        _draw_bars(column[2], best)
    axes[0, 0].text(-0.06, 0.5, "image", **_row_title(axes[0, 0]))
    axes[1, 0].text(-0.06, 0.5, "attention", **_row_title(axes[1, 0]))
    return figure


def attention_figure(images, maps, titles=None, columns=3):
    """Draws each image beside what a model looks at in it.

    Figure 6 of the paper: the input, and its attention laid over it.

    Args:
        images: `(n, height, width, 3)`, 0..255.
        maps: `(n, rows, columns)`, for example of `attention_rollout` or
            `class_relevance`; each is spread over the colours by itself.
        titles: Optional text for each image.
        columns: Int, pairs side by side.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The numbers of images, maps and titles differ.
    """
    images, maps = list(images), list(maps)
    titles = [""] * len(images) if titles is None else list(titles)
    _check_counts(images=images, maps=maps, titles=titles)
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    height, width = images[0].shape[:2]
    tall = 2.1 * height / width + 0.4
    figure = new_figure(4.4 * columns, tall * rows + 0.5)
    axes = figure.subplots(rows, 2 * columns, squeeze=False).reshape(-1, 2)
    overlay_scale(figure, axes)
    for pair in axes:
        for axis in pair:
            axis.set_axis_off()
    for pair, image, grid, title in zip(
        axes, images, maps, titles, strict=False
    ):
        pair[0].imshow(as_pixels(image))
        text = pair[0].set_title(
            shortened(title, 36), loc="left", fontsize=13, color=INK
        )
        text.set_in_layout(False)  # it may stand over both
        pair[1].imshow(overlay(image, grid))
    return figure


def reconstruction_figure(images, masked, completed):
    """Draws images, what was left of them, and what a model made of that.

    Args:
        images: `(n, height, width, 3)`, 0..255.
        masked: The same, of `MaskedAutoencoder.reconstruct`.
        completed: The same.

    Returns:
        A `matplotlib.figure.Figure`, one column per image.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The numbers of images differ.
    """
    rows = {"image": images, "seen": masked, "completed": completed}
    _check_counts(images=images, masked=masked, completed=completed)
    height, width = images[0].shape[:2]
    figure = new_figure(1.4 * len(images) + 0.5, 4.3 * height / width)
    axes = figure.subplots(3, len(images), squeeze=False)
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(as_pixels(picture))
            axis.set_axis_off()
        line[0].text(-0.12, 0.5, name, **_row_title(line[0]))
    return figure


def filters_figure(filters, variance=None, columns=7):
    """Draws the principal components of the patch filters.

    Figure 7, left. Zero is middle gray; each filter fills the range of
    colours by itself.

    Args:
        filters: `(k, height, width, 3)`, of `patch_filters`.
        variance: Optional `(k,)`, of `patch_filters(with_variance=True)`;
            written above each filter in per cent.
        columns: Int, filters side by side.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    columns = min(columns, len(filters))
    rows = math.ceil(len(filters) / columns)
    tall = 1.05 if variance is None else 1.3
    # No narrower than its title.
    figure = new_figure(max(1.1 * columns, 5), tall * rows + 0.5)
    figure.suptitle(
        "Principal components of the first filters", fontsize=14, color=INK
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for i, (axis, image) in enumerate(zip(axes, filters, strict=False)):
        axis.imshow(0.5 + 0.5 * image / np.abs(image).max())
        if variance is not None:
            axis.set_title(f"{variance[i]:.1%}", fontsize=10, color=GRAY, pad=3)
    return figure


def similarity_figure(similarity):
    """Draws how alike the positions are: one tile for each patch.

    Figure 7, centre. The tile in row `r` and column `c` shows the similarity
    of the patch there to all others, so its own place is the brightest.

    Args:
        similarity: `(rows, columns, rows, columns)`, of
            `position_similarity`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    rows, columns = similarity.shape[:2]
    gap = max(1, min(rows, columns) // 6)
    # One picture with empty lines in it: an axis per tile takes minutes.
    tiles = np.pad(
        similarity,
        ((0, 0), (0, 0), (0, gap), (0, gap)),
        constant_values=np.nan,
    )
    shape = (rows * (rows + gap), columns * (columns + gap))
    mosaic = tiles.transpose(0, 2, 1, 3).reshape(shape)[:-gap, :-gap]
    aspect = mosaic.shape[1] / mosaic.shape[0]
    tall = min(6.2 if aspect > 0.5 else 8, 10 / aspect)
    wide = tall * aspect
    figure = new_figure(max(wide, 3) + 1.6, tall + 0.9)
    axis = figure.subplots()
    picture = axis.imshow(mosaic, cmap=MAP, vmin=-1, vmax=1)
    figure.suptitle("Similarity of position embeddings", fontsize=14, color=INK)
    _label_tiles(
        axis.xaxis, columns, columns + gap, "column of the patch", wide
    )
    _label_tiles(axis.yaxis, rows, rows + gap, "row of the patch", tall)
    axis.spines[:].set_visible(False)
    heat_scale(figure, picture, axis, "cosine similarity", (-1, 0, 1))
    return figure


def _label_tiles(axis, count, step, label, inches):
    every = max(1, math.ceil(count / (2.4 * inches)))
    places = range(0, count, every)
    axis.set_ticks(
        [i * step + (count - 1) / 2 for i in places],
        [str(i + 1) for i in places],
        fontsize=11,
        color=GRAY,
    )
    axis.set_tick_params(length=0)
    axis.set_label_text(label, fontsize=12, color=INK)


def _check_counts(**parts):
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) != 1 or not counts["images"]:
        raise ValueError(
            f"Each image needs one of each. Expected: equal numbers, at least "
            f"1. Received: {counts}."
        )


def _row_title(axis):
    return {
        "transform": axis.transAxes,
        "rotation": 90,
        "ha": "right",
        "va": "center",
        "fontsize": 12,
        "color": "0.35",
    }


def _draw_bars(axis, best):
    values = [value for _, value in best][::-1]
    axis.barh(range(len(best)), values, color=BLUE, height=0.35)
    axis.set_xlim(0, 1)
    axis.set_ylim(-0.4, len(best) - 0.1)
    axis.set_axis_off()
    for i, (name, value) in enumerate(best[::-1]):
        style = {"va": "bottom", "fontsize": 10, "color": INK}
        axis.text(0, i + 0.22, shortened(name, 20), **style)
        axis.text(1, i + 0.22, f"{value:.0%}", ha="right", **style)

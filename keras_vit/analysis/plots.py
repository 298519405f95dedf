"""Pictures of arrays. Only this module knows matplotlib."""

import numpy as np


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
    """
    figure = _new_figure(len(images))
    axes = figure.subplots(3, len(images), height_ratios=(1, 1, 0.75))
    axes = np.reshape(axes, (3, len(images)))
    for column, image, grid, best in zip(
        axes.T, images, maps, answers, strict=True
    ):
        picture, attention, bars = column
        picture.imshow(np.asarray(image, "uint8"))
        picture.set_title(f"{best[0][0]}\n{best[0][1]:.0%}", fontsize=11)
        attention.imshow(_overlay(image, grid))
        for axis in (picture, attention):
            axis.set_axis_off()
        _draw_bars(bars, best)
    axes[0, 0].text(-0.15, 0.5, "image", **_row_title(axes[0, 0]))
    axes[1, 0].text(-0.15, 0.5, "attention", **_row_title(axes[1, 0]))
    return figure


def _new_figure(columns):
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Expected: it to be installed. "
            "Received: no such package. Run "
            "`pip install 'keras-vit-garden[plots]'`."
        ) from error
    return Figure((1.75 * columns + 0.4, 5.4), dpi=110, layout="constrained")


def _row_title(axis):
    return {
        "transform": axis.transAxes,
        "rotation": 90,
        "ha": "right",
        "va": "center",
        "fontsize": 10,
        "color": "0.35",
    }


def _overlay(image, grid):
    """The image in gray, brightest and coloured where the map is high."""
    from matplotlib import colormaps
    from PIL import Image

    height, width = image.shape[:2]
    low, high = grid.min(), grid.max()
    scaled = (grid - low) / max(high - low, 1e-12)
    smooth = Image.fromarray(scaled.astype("float32"))
    smooth = np.asarray(smooth.resize((width, height), Image.BICUBIC))
    smooth = np.clip(smooth, 0, 1)[..., None]
    gray = np.asarray(image, "float32").mean(-1, keepdims=True) / 255
    # Cividis reads the same to colour-blind eyes.
    colour = colormaps["cividis"](smooth[..., 0])[..., :3]
    return np.clip(0.35 * gray + 0.65 * colour * (0.35 + 0.65 * gray), 0, 1)


def _draw_bars(axis, best):
    names = [name for name, _ in best][::-1]
    values = [value for _, value in best][::-1]
    axis.barh(names, values, color="#3b6ea5", height=0.6)
    axis.set_xlim(0, 1)
    axis.set_yticks([])
    axis.set_xticks([0, 1], ["0", "1"], fontsize=8, color="0.35")
    axis.spines[["top", "right", "left"]].set_visible(False)
    for i, name in enumerate(names):
        axis.text(0.02, i + 0.36, name, va="bottom", fontsize=8, color="0.1")
    axis.set_ylim(-0.5, len(names) + 0.1)

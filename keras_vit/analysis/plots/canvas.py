"""What all pictures share: paper, colours, and a map laid over an image."""

import numpy as np

# Okabe & Ito's palette, told apart by colour-blind eyes; the dark ones first.
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
COLOURS = (BLUE, ORANGE, GREEN, PINK)
INK, GRAY = "0.15", "0.45"
MAP = "cividis"  # reads the same to all eyes, and in black and white


def new_figure(width, height):
    """Returns an empty figure of this size in inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Expected: it to be installed. "
            "Received: no such package. Run "
            "`pip install 'keras-vit-garden[plots]'`."
        ) from error
    return Figure((width, height), dpi=110, layout="constrained")


def chart_axis(figure, title, across, up):
    """Returns the only axis of a chart, labelled and without a box."""
    axis = figure.subplots()
    style_axis(axis, title, across, up)
    return axis


def style_axis(axis, title, across, up):
    """Labels an axis and takes away what is not data."""
    axis.set_title(title, loc="left", fontsize=15, color=INK, pad=12)
    axis.set_xlabel(across, fontsize=13, color=INK)
    axis.set_ylabel(up, fontsize=13, color=INK)
    axis.tick_params(labelsize=12, colors=GRAY)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("0.75")
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)


def as_pixels(image):
    """Returns an image of 0..255 in any dtype as uint8 (F16)."""
    return np.clip(np.asarray(image, "float32"), 0, 255).astype("uint8")


def overlay(image, grid):
    """Returns the image in gray, brightest and coloured where a map is high.

    Args:
        image: `(height, width, 3)`, 0..255.
        grid: `(rows, columns)`; its own range is spread over the colours.

    Returns:
        Float32 array `(height, width, 3)`, 0..1.
    """
    from matplotlib import colormaps
    from PIL import Image

    image, grid = np.asarray(image), np.asarray(grid, "float32")
    height, width = image.shape[:2]
    low, high = grid.min(), grid.max()
    scaled = (grid - low) / max(high - low, 1e-12)
    bicubic = Image.Resampling.BICUBIC
    smooth = Image.fromarray(scaled.astype("float32"))
    smooth = np.asarray(smooth.resize((width, height), bicubic))
    smooth = np.clip(smooth, 0, 1)[..., None]
    gray = np.asarray(image, "float32").mean(-1, keepdims=True) / 255
    colour = colormaps[MAP](smooth[..., 0])[..., :3]
    # The colours keep half of their light on black.
    mixed = 0.3 * gray + 0.7 * colour * (0.5 + 0.5 * gray)
    return np.clip(mixed, 0, 1).astype("float32")

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
    figure = Figure((width, height), dpi=110, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def shortened(text, most):
    """Returns at most so many letters of a label, the cut marked."""
    if len(text) <= most:
        return text
    return text[: most - 1].rstrip(" ,;") + "…"


def heat_scale(figure, picture, axis, label, ticks):
    """Draws the scale of a heat map beside it."""
    bar = figure.colorbar(picture, ax=axis, ticks=ticks, shrink=0.8, aspect=24)
    bar.set_label(label, fontsize=12, color=INK)
    bar.ax.tick_params(labelsize=11, colors=GRAY)
    bar.outline.set_visible(False)


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
    """Returns the image in gray below a map, from dark blue to yellow.

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
    smooth = np.clip(smooth, 0, 1)
    gray = np.asarray(image, "float32").mean(-1, keepdims=True) / 255
    colour = colormaps[MAP](smooth)[..., :3]
    # Denser where the map is high: its peaks show on black as on white.
    opacity = 0.45 + 0.4 * smooth[..., None]
    mixed = (1 - opacity) * gray + opacity * colour
    return np.clip(mixed, 0, 1).astype("float32")


def overlay_scale(figure, axes):
    """Draws what the colours of overlays mean, below them."""
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(cmap=MAP),
        ax=axes,
        orientation="horizontal",
        ticks=(0, 1),
        aspect=40,
        shrink=0.4,
        pad=0.02,
    )
    bar.set_ticklabels(["least in the image", "most"])
    bar.ax.tick_params(labelsize=11, colors=GRAY, length=0)
    bar.outline.set_visible(False)

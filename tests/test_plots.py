"""Figures: what is drawn is what was given, at the right aspect."""

import io
import pathlib
import runpy
import sys

import matplotlib.text
import numpy as np
import pytest
from PIL import Image

from keras_vit.analysis import plots
from keras_vit.analysis.plots.canvas import as_pixels
from keras_vit.analysis.plots.canvas import overlay

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 16, 24, 3), dtype="uint8")
MAPS = RNG.random((4, 4, 6), dtype="float32")
ANSWERS = [[("a", 0.7), ("b", 0.2)]] * 4
HISTORY = {"loss": [3, 2, 1], "val_loss": [3, 2.5, 2], "accuracy": [0.1, 0.2]}
FIGURES = {
    "prediction": lambda: plots.prediction_figure(IMAGES, MAPS, ANSWERS),
    "attention": lambda: plots.attention_figure(IMAGES, MAPS),
    "reconstruction": lambda: plots.reconstruction_figure(*[IMAGES] * 3),
    "filters": lambda: plots.filters_figure(RNG.normal(size=(5, 4, 6, 3))),
    "similarity": lambda: plots.similarity_figure(np.ones((4, 6, 4, 6))),
    "heads": lambda: plots.heads_figure(RNG.random((3, 2)), most=2.0),
    "cka": lambda: plots.cka_figure(RNG.random((3, 5)), "a", "b"),
    "curves": lambda: plots.curves_figure(HISTORY, "a run"),
}

LONG = "great white shark, white shark, man-eater, Carcharodon carcharias"
SURE = [(LONG, 0.98), ("b", 0.01)]
UNUSUAL = {
    "one image": lambda: plots.prediction_figure(IMAGES[:1], MAPS[:1], [SURE]),
    "wide": lambda: plots.prediction_figure(IMAGES, MAPS, [SURE] * 4),
    "titles": lambda: plots.attention_figure(IMAGES, MAPS, [LONG] * 4),
    "one title": lambda: plots.attention_figure(IMAGES[:1], MAPS[:1], [LONG]),
    "one filter": lambda: plots.filters_figure(RNG.normal(size=(1, 4, 6, 3))),
    "tall grid": lambda: plots.similarity_figure(np.ones((24, 6, 24, 6))),
    "one block": lambda: plots.heads_figure(RNG.random((1, 3))),
    "few layers": lambda: plots.cka_figure(RNG.random((2, 24)), LONG[:40], "b"),
    "rates": lambda: plots.curves_figure({**HISTORY, "rate": [1, 1]}, LONG),
}


def picture(figure):
    """The figure as pixels, 0..255."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return np.asarray(Image.open(stream).convert("RGB"))


@pytest.mark.parametrize("name", FIGURES)
def test_no_axis_is_empty(name):
    figure = FIGURES[name]()
    pixels = picture(figure)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    assert (pixels[:4] == 255).all()  # nothing is cut off above
    for axis in figure.axes:
        drawn = axis.has_data() or axis.images or axis.collections
        assert drawn or not axis.axison


@pytest.mark.parametrize("name", [*FIGURES, *UNUSUAL])
def test_no_text_is_cut_off(name):
    """Long labels, one image, sides of 1:4: all text is on the paper."""
    figure = {**FIGURES, **UNUSUAL}[name]()
    picture(figure)
    paper = figure.bbox.padded(1)
    ticks = {  # those beyond an end of the axis are not drawn
        label
        for axis in figure.axes
        for label in (*axis.get_xticklabels(), *axis.get_yticklabels())
    }
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text() and text.get_visible() and text not in ticks:
            box = text.get_window_extent()
            assert paper.containsx(box.x0), text
            assert paper.containsx(box.x1), text
            assert paper.containsy(box.y0), text
            assert paper.containsy(box.y1), text


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_readable_on_a_slide(name):
    """At least 10 points on a figure of at most 12 inches."""
    figure = FIGURES[name]()
    picture(figure)
    assert figure.get_figwidth() < 14
    for axis in figure.axes:
        ticks = [*axis.get_xticklabels(), *axis.get_yticklabels()]
        for text in [*axis.texts, *ticks, axis.title, axis.xaxis.label]:
            if text.get_text() and axis.axison:
                assert text.get_fontsize() >= 10, text


def test_images_keep_their_aspect_and_values():
    figure = plots.attention_figure(IMAGES, MAPS, list("abcd"), columns=2)
    picture(figure)  # lays it out
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == 8
    assert [axis.get_title(loc="left") for axis in shown[::2]] == list("abcd")
    for i, axis in enumerate(shown[::2]):
        np.testing.assert_array_equal(axis.images[0].get_array(), IMAGES[i])
    for axis in shown:
        assert axis.get_aspect() == 1
        box = axis.get_window_extent()
        assert box.width / box.height == pytest.approx(1.5, abs=0.02)


def test_overlay_is_bright_where_the_map_is():
    grid = np.zeros((4, 6))
    grid[1, 4] = 1
    image = np.full((16, 24, 3), 100, "uint8")
    mixed = overlay(image, grid).sum(-1)
    assert np.unravel_index(mixed.argmax(), mixed.shape)[0] in range(4, 8)
    assert np.unravel_index(mixed.argmax(), mixed.shape)[1] in range(16, 20)
    assert mixed.max() > 1.4 * mixed[-1, 0]
    # On black, too, a peak is bright: 0.85 of the colour.
    assert overlay(0 * image, grid).sum(-1).max() > 0.7 * mixed.max()
    assert np.isfinite(overlay(image, np.ones((4, 6)))).all()


def test_floats_of_0_to_255_keep_their_colours():
    """F16: matplotlib alone would take 200.0 for white."""
    np.testing.assert_array_equal(as_pixels(IMAGES.astype("float32")), IMAGES)
    figure = plots.attention_figure(IMAGES.astype("float32"), MAPS)
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, IMAGES[0])


def test_similarity_tiles_stand_where_their_patch_is():
    rows, columns = 3, 5
    tiles = np.zeros((rows, columns, rows, columns))
    for r in range(rows):
        for c in range(columns):
            tiles[r, c, r, c] = 1
    mosaic = plots.similarity_figure(tiles).axes[0].images[0].get_array()
    assert mosaic.shape == (3 * 4 - 1, 5 * 6 - 1)
    for r in range(rows):
        for c in range(columns):
            tile = mosaic[r * 4 : r * 4 + 3, c * 6 : c * 6 + 5]
            np.testing.assert_array_equal(tile, tiles[r, c])


def test_heads_and_curves_draw_the_numbers():
    values = RNG.random((3, 2))
    axis = plots.heads_figure(values, "nats", most=2.0).axes[0]
    dots = axis.collections[0].get_offsets()
    np.testing.assert_allclose(dots[:, 1], values.ravel())
    np.testing.assert_allclose(dots[:, 0], [1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), values.mean(axis=1))
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylabel() == "nats"
    loss, accuracy = plots.curves_figure(HISTORY).axes
    assert [line.get_label() for line in loss.lines] == [
        "training",
        "validation",
    ]
    np.testing.assert_array_equal(loss.lines[1].get_ydata(), [3, 2.5, 2])
    assert accuracy.get_ylabel() == "accuracy"


def test_cka_is_drawn_from_below():
    matrix = RNG.random((3, 5))
    axis = plots.cka_figure(matrix, "a", "b").axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), matrix)
    assert axis.get_ylim()[0] < axis.get_ylim()[1]
    assert axis.get_ylabel() == "a: layer"
    assert axis.get_xlabel() == "b: layer"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: plots.attention_figure(IMAGES, MAPS[:3]), "'maps': 3"),
        (lambda: plots.attention_figure([], []), "'images': 0"),
        (lambda: plots.prediction_figure([], [], []), "'images': 0"),
        (lambda: plots.curves_figure({"loss": []}), "nothing to draw"),
    ],
)
def test_nothing_to_draw(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_without_matplotlib(monkeypatch):
    """K08: the extra to install is named."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"keras-vit-garden\[plots\]"):
        plots.heads_figure(np.ones((2, 2)))


def test_no_window_is_opened(monkeypatch):
    """Nor asked for: without a screen there is no backend that has one."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for draw in FIGURES.values():
        picture(draw())


def test_recipe_draws_them_all(tmp_path, monkeypatch, capsys):
    """`recipes/figures.py`, as a user runs it."""
    recipe = pathlib.Path(__file__).parent.parent / "recipes" / "figures.py"
    monkeypatch.setattr(sys, "argv", ["figures.py", "--out", str(tmp_path)])
    runpy.run_path(str(recipe), run_name="__main__")
    written = sorted(path.stem for path in tmp_path.glob("*.png"))
    assert written == [
        "cka",
        "distance",
        "filters",
        "positions",
        "relevance",
        "rollout",
    ]
    assert capsys.readouterr().out.count("written: ") == 6

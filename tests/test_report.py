"""`keras-vit explain`: a page, looked at in a real browser."""

import base64
import contextlib
import io
import re
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from random_weights import filled
from random_weights import pictures

import keras_vit
from keras_vit.analysis.plots.canvas import overlay
from keras_vit.analysis.report import report_page
from keras_vit.cli import main

pytestmark = pytest.mark.once

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SMALL = {"image_size": (8, 12), "width": 16, "mlp_dim": 24}
# fmt: off
KINDS = {
    "no head": {"num_classes": 0, "image_size": (64, 8)},
    "no places": {
        "position": "relative", "class_token": False, "pooling": "map"},
    "hybrid": {
        "num_registers": 2, "pooling": "gap", "patch_size": 1,
        "image_size": (16, 24), "stages": (), "trunk_width": 32,
        "num_classes": 1},
}
# fmt: on
DATA = """() => {
  const canvas = document.getElementById("rolled");
  const size = [canvas.height, canvas.width];
  const context = canvas.getContext("2d");
  return [size, Array.from(context.getImageData(0, 0, size[1], size[0]).data)];
}"""


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of the command, on one of the sample images."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    sample = str(keras_vit.sample_images()[0])
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["explain", sample, "--out", str(path)]) == 0
    assert str(path) in said.getvalue()
    assert not list(path.parent.glob("*.part"))
    return path


@contextlib.contextmanager
def opened(browser, path, **options):
    """The page in a browser without a network; no error may be logged."""
    context = browser.new_context(offline=True, **options)
    page, errors = context.new_page(), []
    page.on("console", lambda m: errors.append(m.text))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("requestfailed", lambda r: errors.append(r.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready=true]", timeout=20_000)
    yield page
    assert not errors
    context.close()


def rolled(page):
    size, values = page.evaluate(DATA)
    return np.array(values).reshape(*size, 4)[..., :3] / 255


def test_slider_moves_the_picture(browser, written):
    """Each block's picture is that of the plots, to 2 levels in the mean."""
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    images = keras_vit.load_images(keras_vit.sample_images()[:1], model)
    maps = keras_vit.attention_rollout(model, images, per_block=True)[:, 0]
    with opened(browser, written) as page:
        slider = page.locator("#block")
        assert page.locator("#block-name").inner_text() == "after block 6 of 6"
        seen = []
        for key, block in (("Home", 1), ("ArrowRight", 2), ("End", 6)):
            slider.press(key)
            text = page.locator("#block-name").inner_text()
            assert text == f"after block {block} of 6"
            seen.append(rolled(page))
            size = seen[-1].shape[1::-1]
            nearest = Image.Resampling.NEAREST  # 28 pixels stay 28
            big = Image.fromarray(images[0]).resize(size, nearest)
            expected = overlay(np.asarray(big), maps[block - 1])
            assert np.abs(seen[-1] - expected).mean() < 0.03
        assert np.abs(seen[0] - seen[1]).max() > 0.1
        assert np.abs(seen[0] - seen[2]).max() > 0.1


def test_says_what_the_model_says(browser, written):
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    images = keras_vit.load_images(keras_vit.sample_images()[:1], model)
    best = keras_vit.top_labels(model.predict(images, verbose=0), model, k=5)
    with opened(browser, written) as page:
        rows = page.locator("#labels .label").all_inner_texts()
        for row, (name, probability) in zip(rows, best[0], strict=True):
            assert row.split("\n")[:2] == [name, f"{100 * probability:.1f} %"]
        assert "its 10 labels" in page.locator("#answer-text").inner_text()
        facts = page.locator("#facts").inner_text()
        assert "vit_nano_fashion_mnist" in facts
        assert "the mean of all patches" in facts
        assert "257,418" in facts
        assert keras.config.backend() in facts
        assert page.locator("#heads canvas").count() == 2
        assert page.locator("#components canvas").count() == 28
        assert page.locator("#relevances canvas").count() == 3
        assert page.locator("#distances circle").count() == 12
        assert page.locator("#similarity").is_visible()


def test_light_dark_and_phone(browser, written):
    colours = []
    for scheme in ("light", "dark"):
        with opened(
            browser,
            written,
            color_scheme=scheme,
            viewport={"width": 360, "height": 740},
        ) as page:
            number = page.locator("#distances text").first.bounding_box()
            assert number["height"] > 11  # in pixels of the phone
            wide = page.evaluate("document.scrollingElement.scrollWidth")
            assert wide <= 360
            colours.append(
                page.evaluate("getComputedStyle(document.body).backgroundColor")
            )
            assert len(page.screenshot(full_page=True)) > 20_000
    light, dark = (
        [int(n) for n in re.findall(r"\d+", colour)[:3]] for colour in colours
    )
    assert min(light) > 200
    assert max(dark) < 60


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model(kind, browser, tmp_path):
    model = filled(**{**SMALL, **KINDS[kind]})
    height, width = model.config.image_size
    path = tmp_path / "page.html"
    page = report_page(model, pictures(1, height, width)[0])
    path.write_text(page, "utf-8")
    similarity = re.search(r'"similarity": "([^"]*)"', page)
    if kind == "no head":  # every second row and column of 16x2 tiles
        assert len(base64.b64decode(similarity[1])) == 8 * 1 * 16 * 2
    with opened(browser, path) as page:
        assert rolled(page).shape[0] * width == rolled(page).shape[1] * height
        assert page.locator("#similarity").is_visible() is (kind != "no places")
        if kind == "no head":
            tiles = page.locator("#similarity")
            size = [tiles.get_attribute(name) for name in ("width", "height")]
            assert size == ["2", str(8 * (16 + 1) - 1)]
            assert "every 2 rows" in page.locator("#tiles-text").inner_text()
        labels = page.locator("#labels .label").count()
        assert labels == model.config.num_classes
        relevance = page.locator("#relevance").is_visible()
        assert relevance is (kind != "no head")


def test_names_are_text_and_nothing_else(browser, tmp_path):
    bad = "</script><img src=x onerror=alert(1)>{{data}}"
    model = filled(**SMALL, num_classes=2, labels=[bad, "b"])
    path = tmp_path / "page.html"
    page = report_page(model, pictures(1, 8, 12)[0], title=bad)
    path.write_text(page, "utf-8")
    with opened(browser, path) as page:
        assert bad in page.locator("#labels").inner_text()
        assert page.locator("h1").inner_text() == bad
        assert page.locator("img").count() == 1


def test_page_stands_alone(written):
    text = written.read_text("utf-8")
    assert not re.search(r"(?:src|href)=.?(?:https?:|//|[\w/]+\.)", text)
    assert "{{" not in text
    assert len(text) < 100_000


@pytest.mark.parametrize("out", ["missing/report.html", "."])
def test_page_that_cannot_be_written(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sample = str(keras_vit.sample_images()[0])
    assert main(["explain", sample, "--out", out]) == 2
    assert repr(out) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_page_without_attention():
    config = keras_vit.resnet_config("r26x1", stages=(1,), image_size=32)
    with pytest.raises(TypeError, match="ResNetV2"):
        report_page(keras_vit.ResNetV2(config), pictures(1, 32, 32)[0])


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((8, 12, 1), "Repeat gray"),
        ((8, 12, 4), "Drop the alpha"),
        ((8, 12), "height, width, 3"),
        ((12, 8, 3), r"\(12, 8\)"),
    ],
)
def test_no_page_on_what_is_not_an_image(shape, text):
    with pytest.raises(ValueError, match=text):
        report_page(filled(**SMALL), np.zeros(shape, "uint8"))


@pytest.mark.parametrize("kind", ["gray", "rgba", "line", "large"])
def test_any_file_becomes_an_image(kind, tmp_path, monkeypatch):
    """F06: gray, transparent, one pixel high, or of 12 megapixels."""
    shape = {"gray": (30, 40), "rgba": (30, 40, 4), "line": (1, 50, 3)}
    pixels = np.zeros(shape.get(kind, (3000, 4000, 3)), "uint8")
    path = tmp_path / f"<b>{kind}.png"
    Image.fromarray(pixels).save(path)
    seen = []
    monkeypatch.setattr(
        "keras_vit.analysis.report.report_page",
        lambda _, image, title, facts: seen.append((image, title)) or "page",
    )
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["explain", str(path), "--out", str(tmp_path / "a")]) == 0
    assert seen[0][0].shape == (28, 28, 3)
    assert path.name in seen[0][1]

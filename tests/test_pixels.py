"""Picture files become the pixels that a checkpoint was evaluated on."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import ViTConfig
from keras_vit import load_images
from keras_vit.config import PixelConfig
from keras_vit.pixels import ImageError
from keras_vit.pixels import check_pixels
from keras_vit.pixels import read_image
from keras_vit.pixels import resize_image

IMAGENET = PixelConfig((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SMALL = ViTConfig().replace(image_size=(32, 48))


def smooth_picture(height, width):
    """RGB waves of a few periods, all different in both axes: uint8."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(9 * x + c) * np.cos(7 * y - c) for c in (0.0, 1.0, 2.0)]
    return np.round(127.5 + 120 * np.stack(waves, axis=-1)).astype("uint8")


@pytest.fixture
def picture(tmp_path):
    """Path of a good PNG, 20 x 30."""
    Image.fromarray(smooth_picture(20, 30)).save(tmp_path / "good.png")
    return tmp_path / "good.png"


# Files: mode, colour, name, options of `save` -> RGB.
READABLE = {
    "F14-png": ("RGB", (255, 0, 0), "a.png", {}, (255, 0, 0)),
    "F14-jpeg": ("RGB", (255, 0, 0), "a.jpg", {}, (254, 0, 0)),
    "F06-rgba": ("RGBA", (230, 120, 40, 9), "a.png", {}, (230, 120, 40)),
    "F06-gray-alpha": ("LA", (120, 9), "a.png", {}, (120, 120, 120)),
    "F07-gif-as-jpg": ("L", 120, "a.jpg", {"format": "GIF"}, (120, 120, 120)),
    "F07-8-bit-bmp": ("L", 120, "a.bmp", {}, (120, 120, 120)),
    "16-bit": ("I;16", 120 * 257, "a.png", {}, (120, 120, 120)),
    "float": ("F", 120.0, "a.tif", {}, (120, 120, 120)),
    "cmyk": ("CMYK", (25, 135, 215, 0), "a.tif", {}, (230, 120, 40)),
}


@pytest.mark.parametrize("case", READABLE)
def test_every_kind_of_picture_is_rgb(case, tmp_path):
    """F06 (alpha is dropped), F07, F14."""
    mode, color, name, options, rgb = READABLE[case]
    Image.new(mode, (6, 4), color).save(tmp_path / name, **options)
    image = read_image(tmp_path / name)
    assert image.dtype == "uint8"
    np.testing.assert_array_equal(image, np.full((4, 6, 3), rgb))


def test_orientation_of_the_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to see it upright
    path = tmp_path / "turned.png"
    Image.fromarray(smooth_picture(20, 30)).save(path, exif=exif)
    expected = np.rot90(smooth_picture(20, 30), -1)
    with Image.open(path) as opened:
        for item in (path, opened):
            np.testing.assert_array_equal(read_image(item), expected)


# What a file holds (bytes or an array), and what the error says.
UNREADABLE = {
    "missing": ("no.jpg", None, "No such file"),
    "empty": ("no.jpg", b"", "0 bytes"),
    "web-page": ("no.jpg", b"<!DOCTYPE html><html>404", "web page"),
    "text": ("no.jpg", b"hello world", "68 65 6c 6c 6f"),
    "nan": ("no.npy", np.array([[1.0, np.nan]]), "NaN"),
    "too-bright": ("no.npy", np.array([[0, 256]]), r"0\.\.256"),
    "five-channels": ("no.npy", np.zeros((2, 2, 5)), r"\(2, 2, 5\)"),
    "pickle": ("no.npy", np.array([[None]]), "allow_pickle"),
}


def assert_skipped(picture, path):
    """The others are loaded, and one warning at this file counts and lists."""
    with pytest.warns(UserWarning, match="Left out 1 unreadable of 2") as said:
        batch = load_images([path, picture], on_error="skip")
    assert len(said) == 1
    assert str(path) in str(said[0].message)
    assert said[0].filename == __file__
    np.testing.assert_array_equal(batch, load_images(picture))


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_files_are_named(case, tmp_path, picture):
    """F07: the message has the path; the others are still loaded."""
    name, content, message = UNREADABLE[case]
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=message) as error:
        load_images([picture, path])
    assert str(path) in str(error.value)
    assert_skipped(picture, path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp"])
def test_truncated_pictures(suffix, tmp_path, picture):
    """F07: half a file is an error, not a gray lower half."""
    path = tmp_path / f"cut.{suffix}"
    Image.fromarray(smooth_picture(120, 160)).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ImageError, match=str(path)):
        read_image(path)
    assert_skipped(picture, path)
    with Image.open(path) as opened, pytest.warns(UserWarning, match="Left"):
        # Its header is whole.
        assert len(load_images([opened, picture], on_error="skip")) == 1


def test_pictures_too_large_to_hold(tmp_path, picture, monkeypatch):
    """A decompression bomb; a strip that becomes 224 x 6,720,000."""
    strip = tmp_path / "strip.png"
    Image.new("L", (30_000, 1)).save(strip)
    config = ViTConfig().replace(resize="crop")
    with pytest.raises(ImageError, match=rf"6720000.*{strip}"):
        load_images(strip, config)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ImageError, match=rf"{strip}.*30000 pixels"):
        read_image(strip)
    assert_skipped(picture, strip)


def test_none_is_left(tmp_path):
    with pytest.raises(ImageError, match=str(tmp_path)):
        load_images(tmp_path)  # a folder without pictures
    paths = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    error = pytest.raises(ImageError, match="2 unreadable")
    with pytest.warns(UserWarning, match="Left out 2 unreadable of 2"), error:
        load_images(paths, on_error="skip")


def test_what_would_lose_its_values_is_refused():
    deep = np.full((4, 6), 120 * 257, "uint16")
    with pytest.raises(ImageError, match=r"255.*I;16"):
        load_images(Image.fromarray(deep))
    with pytest.raises(ImageError, match=r"\(4, 6\) of uint16"):
        load_images(deep)
    with pytest.raises(ImageError, match=r"\(4, 6, 3\) of float64"):
        load_images(smooth_picture(4, 6) / 255)


def test_pixel_statistics():
    """F01: what 0, 127.5 and 255 become, by default and for ImageNet's."""
    values = np.array([[0.0], [127.5], [255.0]]) / 255
    half = (values - PixelConfig().mean) / PixelConfig().std
    np.testing.assert_array_equal(half, [[-1] * 3, [0] * 3, [1] * 3])
    mean_zero = (values - IMAGENET.mean) / IMAGENET.std
    black, white = [-2.117904, -2.035714, -1.804444], [2.248908, 2.428571, 2.64]
    np.testing.assert_allclose(mean_zero[::2], [black, white], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scaled_images_warn(dtype):
    """F02: arrays and tensors of the backend; pixels 0..255 pass."""
    images = smooth_picture(4, 6)[None].astype(dtype)
    for convert in (np.asarray, keras.ops.convert_to_tensor):
        with pytest.warns(UserWarning, match="largest value of 0.96") as said:
            check_pixels(convert(images / 255))
        assert len(said) == 1
        check_pixels(convert(images))
        check_pixels(convert(images * 0))
        check_pixels(convert(images[:0]))
    check_pixels((images > 99).astype("uint8"))


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(
    ("resize", "fraction", "start", "step"),
    [("squash", 1.0, 0.5, 2), ("crop", 1.0, 50, 1), ("crop", 0.5, 74.75, 0.5)],
)
def test_squash_or_crop(resize, fraction, start, step, antialias):
    """F03: a ramp of 0..199 says which columns were taken."""
    ramp = np.tile(np.arange(200, dtype="uint8")[:, None], (100, 1, 3))
    pixels = PixelConfig(
        (0.5,) * 3, (0.5,) * 3, resize, fraction, "bilinear", antialias
    )
    image = resize_image(ramp, pixels, 100)
    assert image.shape == (100, 100, 3)
    error = np.abs(image[50, :, 1] - (start + step * np.arange(100)))
    assert error[1:-1].max() <= 0.5  # kernels are cut off at the edge


# Picture, image size, crop fraction, and the size that is cropped.
COVER = [
    # torchvision: the shorter side to 256, the longer rounded down.
    ((500, 375), 224, 224 / 256, (341, 256)),
    ((400, 501), 224, 224 / 256, (256, 320)),
    ((512, 512), 224, 0.9, (248, 248)),  # timm, DeiT: 224 / 0.9, down
    ((400, 400), 224, 224 / 354, (354, 354)),  # 353.99999999999994 in floats
    # timm: both sides cover a rectangle, the longer rounded to the nearest.
    ((300, 401), (192, 256), 1.0, (192, 257)),
    ((300, 500), (224, 160), 0.875, (256, 427)),
]


@pytest.mark.parametrize(("size", "image_size", "fraction", "scaled"), COVER)
def test_central_crop(size, image_size, fraction, scaled):
    """F03: the very pixels of Pillow's resize and a cut in the middle."""
    image = smooth_picture(*size)
    pixels = PixelConfig(resize="crop", crop_fraction=fraction)
    result = resize_image(image, pixels, image_size)
    whole = Image.fromarray(image).resize(scaled[::-1], Image.BICUBIC)
    height, width = map(int, np.broadcast_to(image_size, 2))
    top = round((scaled[0] - height) / 2)
    left = round((scaled[1] - width) / 2)
    box = (left, top, left + width, top + height)
    np.testing.assert_array_equal(result, np.asarray(whole.crop(box)))


def dense(old, new, slope, antialias):
    """Resampling matrix in float64; `slope` of a cubic, `None` for linear."""
    center = (np.arange(new)[:, None] + 0.5) * old / new - 0.5
    wide = max(old / new, 1) if antialias else 1
    t = np.abs(np.arange(-3, old + 3) - center) / wide
    w = np.maximum(1 - t, 0)
    if slope is not None:
        outer = np.where(t < 2, slope * np.polyval([1, -5, 8, -4], t), 0)
        inner = np.polyval([slope + 2, -slope - 3, 0, 1], t)
        w = np.where(t < 1, inner, outer)
    if not antialias:
        w[:, 3] += w[:, :3].sum(axis=1)
        w[:, -4] += w[:, -3:].sum(axis=1)
    return w[:, 3:-3] / w[:, 3:-3].sum(axis=1, keepdims=True)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(224, 160), (600, 640)], ids=["down", "up"])
def test_resized_photograph(interpolation, antialias, size):
    """F04: within a gray level of float64, with and without antialias."""
    photo = pytest.importorskip("skimage.data").astronaut()
    pixels = PixelConfig(interpolation=interpolation, antialias=antialias)
    slope = -0.5 if antialias else -0.75  # Pillow's, torch's
    slope = slope if interpolation == "bicubic" else None
    rows, columns = (dense(512, n, slope, antialias) for n in size)
    wide = np.einsum("jw,hwc->hjc", columns, photo, optimize=True)
    if antialias:
        wide = wide.clip(0, 255)  # Pillow's 8 bits between the two passes
    expected = np.einsum("ih,hjc->ijc", rows, wide, optimize=True).clip(0, 255)
    error = np.abs(resize_image(photo, pixels, size) - expected)
    assert error.mean() <= 0.4  # rounding alone: 0.25
    assert error.max() <= (1.5 if antialias else 0.501)


def test_batch_equals_single_pictures(tmp_path, picture):
    """F18: files, a folder, Pillow images and arrays, of any size."""
    Image.fromarray(smooth_picture(70, 50)).save(tmp_path / "large.BMP")
    (tmp_path / "notes.txt").write_text("no picture")
    paths = [picture, str(tmp_path / "large.BMP")]
    batch = load_images(paths, SMALL)
    assert batch.shape == (2, 32, 48, 3)
    arrays = [read_image(path) for path in paths]
    images = [Image.fromarray(array) for array in arrays]
    for items in (tmp_path, arrays, images, iter(paths)):
        np.testing.assert_array_equal(load_images(items, SMALL), batch)
    for items in (paths, arrays, images):
        singles = [load_images(item, SMALL)[0] for item in items]
        np.testing.assert_array_equal(singles, batch)
    np.testing.assert_array_equal(load_images(batch, SMALL), batch)


def test_the_model_says_how(picture):
    """F03: its recipe, its size unless another is given, its layout."""
    config = SMALL.replace(resize="crop", crop_fraction=0.5)
    expected = resize_image(read_image(picture), config.pixels, (32, 48))
    np.testing.assert_array_equal(load_images(picture, config)[0], expected)
    first = config.replace(data_format="channels_first")
    channels = np.moveaxis(load_images(picture, first)[0], 0, -1)
    np.testing.assert_array_equal(channels, expected)
    assert load_images(picture, config, image_size=16).shape == (1, 16, 16, 3)
    lanczos = config.replace(interpolation="lanczos", antialias=False)
    with pytest.raises(ValueError, match="no lanczos rule without antialias"):
        load_images(picture, lanczos)
    with pytest.raises(TypeError, match="model='vit_b16'"):
        load_images(picture, "vit_b16")


def test_pictures_without_a_model(picture):
    assert load_images([picture] * 2).shape == (2, 20, 30, 3)
    assert load_images(picture, image_size=8).shape == (1, 8, 8, 3)
    with pytest.raises(ImageError, match=r"\(4, 6\), \(20, 30\)"):
        load_images([picture, smooth_picture(4, 6)])


@pytest.mark.parametrize("paths", [[], "", " "])
def test_nothing_to_load(paths):
    with pytest.raises(ValueError, match="nothing to load"):
        load_images(paths)

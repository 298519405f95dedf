"""Resampling against what the reference implementations computed.

`oracles/resample_*.npz` hold random tables and kernels and what these made
of them, on CPU in float32: scipy 1.17 (`*_zoom`), jax 0.10 (`flexi_*`),
torch 2.14 through timm 1.0 (`timm_*`) and DINO's own code (`dino_*`),
big_vision and MAE (`*_sincos2d`). Arrays are named
`<function>_<old>_<new>`, positions `(rows, columns, 4)`, kernels `(height,
width, 3, 2)`. By-size bicubic of HF ViT, DeiT, DINOv2 and MAE equals timm's
to the bit, as do DINOv2's and DINO's, and big_vision's zoom and Google's.
"""

import pathlib

import keras
import numpy as np
import PIL.Image
import pytest
from keras import ops

from keras_vit.resampling import RULES
from keras_vit.resampling import resample
from keras_vit.resampling import resize_matrix
from keras_vit.resampling import resize_patch_kernel
from keras_vit.resampling import sincos_2d

ORACLES = pathlib.Path(__file__).parent / "oracles"
POSITIONS = dict(np.load(ORACLES / "resample_positions.npz"))
KERNELS = dict(np.load(ORACLES / "resample_kernels.npz"))

# Function of the reference -> our rule.
FUNCTIONS = {
    "google_zoom": "zoom",
    "scipy_zoom": "zoom",
    "timm_bilinear": "bilinear",
    "flexi_linear": "bilinear_antialias",
    "timm_bicubic": "bicubic",
    "timm_bicubic_aa": "bicubic_antialias",
    "dino": "dino",
    "flexi_kernel": "bilinear",
    "timm_kernel_bilinear": "bilinear",
    "timm_kernel_bicubic_aa": "bicubic_antialias",
}
SINCOS = {"bigvision_sincos2d": "moco_v3", "mae_sincos2d": "mae"}
TABLES = [k for k in POSITIONS if k.rsplit("_", 2)[0] in FUNCTIONS]
PATCHES = [k for k in KERNELS if k.rsplit("_", 2)[0] in FUNCTIONS]
WAVES = [k for k in POSITIONS if k.rsplit("_", 2)[0] in SINCOS]
LENGTHS = [(1, 1), (1, 4), (4, 1), (7, 12), (14, 24), (24, 14), (37, 16)]
LENGTHS += [(37, 74), (128, 100), (224, 97)]


def random_table(rows, columns, width=16):
    shape = (rows, columns, width)
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def size_of(text):
    """`"5x9"` or `"8"` as a pair."""
    sides = [int(side) for side in text.split("x")]
    return sides[0], sides[-1]


def gap(a, b):
    """Largest difference, as a part of the largest value of `b`."""
    return np.abs(a - b).max() / np.abs(b).max()


def test_oracles_are_all_used():
    inputs = [
        k for k in [*POSITIONS, *KERNELS] if k[:6] in ("table_", "kernel")
    ]
    assert len(inputs) == 6
    assert len(TABLES) == 30
    assert len(PATCHES) == 17
    assert len(WAVES) == 3
    used = {*inputs, *TABLES, *PATCHES, *WAVES}
    assert used == {*POSITIONS, *KERNELS}


@pytest.mark.parametrize("name", TABLES)
def test_positions_equal_the_reference(name):
    """B01, B03, B04: every rule gives the outputs of its origin to 1e-5."""
    function, old, new = name.rsplit("_", 2)
    rule = FUNCTIONS[function]
    result = resample(POSITIONS[f"table_{old}"], size_of(new), rule)
    np.testing.assert_allclose(result, POSITIONS[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", PATCHES)
def test_patch_kernels_equal_the_reference(name):
    """Values up to 7.5 from float32 pseudo-inverses: 1e-5 is 2e-6 of that."""
    function, old, new = name.rsplit("_", 2)
    kernel = KERNELS[f"kernel_{old}"]
    result = resize_patch_kernel(kernel, size_of(new), FUNCTIONS[function])
    np.testing.assert_allclose(result, KERNELS[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", WAVES)
def test_sincos_equals_the_reference(name):
    """B14: a fixed table of any grid."""
    function, grid, width = name.rsplit("_", 2)
    flavour = SINCOS[function]
    table = sincos_2d(*size_of(grid), int(width), flavour=flavour)
    assert table.dtype == "float32"
    np.testing.assert_allclose(table, POSITIONS[name], rtol=0, atol=1e-6)


# Two rules, the new side of a 14x14 table, and the gap between them as a part
# of the second one's largest value.
@pytest.mark.parametrize(
    ("one", "other", "new", "low", "high"),
    [
        pytest.param("zoom", "bilinear", 24, 0.2, 0.4, id="B01-24"),
        pytest.param("zoom", "bilinear", 7, 0.9, 1.8, id="B01-7"),
        # Only the cubic constant, -0.5 and -0.75, is left when enlarging.
        pytest.param("bicubic_antialias", "bicubic", 24, 0.05, 0.1, id="B02"),
        pytest.param("bicubic_antialias", "bicubic", 7, 0.5, 0.7, id="B03-7"),
        pytest.param("bilinear_antialias", "bilinear", 24, 0, 0, id="B03-24"),
        pytest.param("dino", "bicubic", 24, 0.05, 0.2, id="B04-24"),
        pytest.param("dino", "bicubic", 7, 0.3, 0.6, id="B04-7"),
    ],
)
def test_rules_differ(one, other, new, low, high):
    table = random_table(14, 14, 256)
    one, other = (resample(table, (new, new), rule) for rule in (one, other))
    assert low <= gap(one, other) <= high


@pytest.mark.parametrize("new", [24, 7])
def test_own_resize_of_a_backend_differs(new):
    """B02: bicubic of torch is our `bicubic`; of JAX and TensorFlow is not."""
    table = random_table(14, 14)
    theirs = ops.image.resize(
        table, (new, new), interpolation="bicubic", antialias=False
    )
    ours = resample(table, (new, new), "bicubic")
    assert type(ours) is np.ndarray
    difference = gap(ops.convert_to_numpy(theirs), ours)
    if keras.backend.backend() == "torch":
        assert difference < 1e-5
    else:
        assert 0.05 < difference < 0.2


def test_dino_at_224():
    """B04: DINOv2's 37x37 at 224 px; the offset shifts the far end inwards."""
    ramp = np.arange(37.0)[:, None, None] * np.ones((37, 37, 1))
    by_size, offset = (
        resample(ramp, (16, 16), rule)[:, 0, 0] for rule in ("bicubic", "dino")
    )
    # Last source coordinate: 15.5 * 37 / 16 - 0.5, and / 16.1.
    np.testing.assert_allclose(by_size[8] - offset[8], 0.12, atol=0.05)
    assert by_size[-1] - offset[-1] > by_size[8] - offset[8]


@pytest.mark.parametrize("rule", RULES)
def test_same_grid_gives_the_same_bits(rule):
    for dtype in ("float16", "float32", "float64"):
        table = random_table(5, 9).astype(dtype)
        result = resample(table, (5, 9), rule)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, table)
    kernel = random_table(5, 9, 6).reshape(5, 9, 3, 2)
    np.testing.assert_array_equal(
        resize_patch_kernel(kernel, (5, 9), rule), kernel
    )


@pytest.mark.parametrize("rule", RULES)
def test_constant_grid_stays_constant(rule):
    for grid in ((8, 3), (3, 20), (1, 1)):
        result = resample(np.full((1, 5, 9, 2), 3.0), grid, rule)
        assert result.shape == (1, *grid, 2)
        np.testing.assert_allclose(result, 3.0, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_transposed_table_gives_the_transposed_result(rule):
    """B05: rows stay rows, whatever the two grids are."""
    table = random_table(5, 9)
    result = resample(table, (8, 3), rule)
    turned = resample(table.swapaxes(0, 1), (3, 8), rule)
    assert result.shape == (8, 3, 16)
    np.testing.assert_allclose(result, turned.swapaxes(0, 1), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_computed_in_float32_whatever_the_type(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    table = random_table(5, 9).astype(dtype)
    result = resample(table, (8, 3), "bicubic")
    inside = resample(table.astype("float32"), (8, 3), "bicubic")
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, inside.astype(dtype))


@pytest.mark.parametrize("rule", ["bilinear", "bilinear_antialias", "bicubic"])
def test_rim_repeats_the_edge_but_for_zoom(rule):
    """B15: a ramp of 37 steps stays one in `zoom` only, and is flat outside."""
    ramp = np.arange(37.0)[:, None, None] * np.ones((37, 37, 1))
    steps = np.diff(resample(ramp, (74, 74), "zoom")[:, 0, 0])
    np.testing.assert_allclose(steps, 36 / 73, rtol=1e-4)
    steps = np.diff(resample(ramp, (74, 74), rule)[:, 0, 0])
    np.testing.assert_allclose(steps[5:-5], 0.5, atol=0.1)
    assert steps[0] < 0.3
    assert steps[-1] < 0.3


@pytest.mark.parametrize("rule", ["bilinear", "bicubic_antialias", "bicubic"])
@pytest.mark.parametrize("size", [(32, 32), (20, 24), (16, 17)])
def test_enlarged_kernel_keeps_the_token(size, rule):
    """B10: tokens of order 25 change by less than 1e-3."""
    kernel, patch = KERNELS["kernel_16"], random_table(16, 16, 3)
    token = np.einsum("hwc,hwcd->d", patch, kernel)
    enlarged = resize_patch_kernel(kernel, size, rule)
    result = np.einsum("hwc,hwcd->d", resample(patch, size, rule), enlarged)
    assert np.abs(token).max() > 5
    np.testing.assert_allclose(result, token, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rule", ["bilinear", "bicubic_antialias"])
@pytest.mark.parametrize("size", [(8, 8), (12, 20), (20, 12), (5, 31)])
def test_patch_kernel_stays_small(size, rule):
    """B10: no huge weights, though the whole-patch matrix may lack rank."""
    kernel = KERNELS["kernel_16"]
    result = resize_patch_kernel(kernel, size, rule)
    assert np.abs(result).max() < 5 * np.abs(kernel).max()
    matrix = np.kron(
        resize_matrix(16, size[0], rule), resize_matrix(16, size[1], rule)
    )
    whole = np.linalg.pinv(matrix.T.astype("float64"), rcond=1e-5)
    whole = (whole @ kernel.reshape(256, 6)).reshape(result.shape)
    np.testing.assert_allclose(result, whole, atol=1e-4)


@pytest.mark.parametrize(
    ("rule", "filter_name"),
    [
        ("nearest", "NEAREST"),
        ("bilinear_antialias", "BILINEAR"),
        ("bicubic_antialias", "BICUBIC"),
        ("lanczos", "LANCZOS"),
    ],
)
def test_images_equal_pillow(rule, filter_name):
    image = random_table(30, 41, 1)[..., 0]
    # No output halfway between two pixels: there Pillow's sum of steps, not
    # a rule, decides on the nearest.
    for height, width in ((14, 60), (64, 7), (20, 41)):
        theirs = PIL.Image.fromarray(image).resize(
            (width, height), PIL.Image.Resampling[filter_name]
        )
        ours = resample(image[..., None], (height, width), rule)[..., 0]
        np.testing.assert_allclose(ours, np.asarray(theirs), atol=1e-5)


def test_sincos_halves_are_column_and_row():
    table = sincos_2d(5, 9, 4)  # one frequency: of 1 radian per place
    rows, columns = np.mgrid[:5, :9]
    waves = [f(x) for x in (columns, rows) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(table, np.stack(waves, axis=-1), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: resample(random_table(2, 3), (2, 4), "zom"), "'zoom'"),
        (lambda: resample(random_table(2, 3), (0, 4), "zoom"), r"\(0, 4\)"),
        (lambda: resample(random_table(2, 3), (2.5, 4), "zoom"), "2.5"),
        (lambda: resample(random_table(2, 3), 4, "zoom"), "grid=4"),
        (lambda: resample(np.ones((6, 4)), (2, 4), "zoom"), r"\(6, 4\)"),
        (lambda: resize_matrix(0, 4, "zoom"), "old=0"),
        (lambda: resize_matrix(4, 0, "zoom"), "new=0"),
        (lambda: resize_patch_kernel(np.ones((4, 6)), (2, 2)), r"\(4, 6\)"),
        (lambda: sincos_2d(2, 3, 10), "width=10.* 12"),
        (lambda: sincos_2d(0, 3, 8), "rows=0"),
        (lambda: sincos_2d(2, 3, 8, flavour="moco"), "'moco_v3'"),
    ],
)
def test_errors_name_what_is_wrong(call, match):
    """B14: among them, a width that sines and cosines cannot share."""
    with pytest.raises(ValueError, match=match):
        call()


def test_integers_are_refused():
    with pytest.raises(TypeError, match="uint8"):
        resample(np.ones((2, 3, 4), "uint8"), (4, 4), "bilinear")

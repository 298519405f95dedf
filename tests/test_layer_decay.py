"""Learning rates and weight decay by layer, in any optimizer.

`oracles/layer_decay.json.gz`: what timm 1.0.31 (`param_groups_layer_decay`)
and MAE's `param_groups_lrd` give each parameter of five models of 12 blocks,
`[scale, weight decay]`. Compared exactly.
"""

import gzip
import json
import pathlib

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import tiny
from random_weights import values

import keras_vit
from keras_vit.training.rates import decayed_paths
from keras_vit.training.rates import rate_scales
from keras_vit.weights.torch_layouts import TIMM_ROWS

ORACLE = pathlib.Path(__file__).parent / "oracles" / "layer_decay.json.gz"
GROUPS = json.loads(gzip.decompress(ORACLE.read_bytes()))
SMALL = {"width": 12, "mlp_dim": 12, "num_heads": 2, "depth": 12}
# fmt: off
MODELS = {
    "timm/vit_base_patch16_224": {},
    "timm/deit_base_distilled_patch16_224": {"distillation_token": True},
    "timm/vit_base_patch16_reg4_gap_256": {
        "class_token": False, "num_registers": 4, "pooling": "gap",
        "norm": "after_pooling"},
    "timm/vit_base_patch16_siglip_224": {
        "class_token": False, "pooling": "map"},
    "mae/vit_gap": {"pooling": "gap", "norm": "after_pooling"},
}
OPTIMIZERS = {
    "sgd": lambda rate: keras.optimizers.SGD(
        0.01 * rate, momentum=0.9, weight_decay=0.1, global_clipnorm=1.0),
    "adamw": lambda rate: keras.optimizers.AdamW(
        0.001 * rate, weight_decay=0.05),
    "scheduled": lambda rate: keras.optimizers.Lion(
        keras_vit.WarmUp(0.01 * rate, steps=9, warmup_steps=3),
        weight_decay=0.05),
    "accumulating": lambda rate: keras.optimizers.AdamW(
        0.001 * rate, weight_decay=0.05, gradient_accumulation_steps=2),
}
# fmt: on


def made(name):
    return keras_vit.ViT(tiny(**SMALL, **MODELS[name], num_classes=3))


def theirs(path):
    """The name of one of our variables in timm."""
    layer, _, last = path.rpartition("/")
    number = "".join(c for c in path.split("/")[0] if c.isdigit())
    layer = layer.replace(f"block_{number}/", "block_{i}/", 1)
    for row in TIMM_ROWS:
        name = row.theirs.replace("{i}", number)
        if row.ours == f"{layer}/{last}":
            return [name]
        if row.ours == layer and last in ("grid", "prefix"):
            return [name]
        if row.ours == layer:
            word = "bias" if last in ("bias", "beta") else "weight"
            both = ("fc_norm", "norm") if layer == "norm" else (name,)
            return [f"{n}.{word}" for n in both]
    raise AssertionError(path)


@pytest.mark.once
@pytest.mark.parametrize("key", GROUPS)
def test_scales_are_the_references(key):
    """E01, E02: exact, for every variable and every parameter of theirs."""
    group, name = GROUPS[key], key.rpartition("/")[0]
    model = made(name)
    norm = "head" if name.startswith("mae") else "block"
    scales = rate_scales(model, group["layer_decay"], norm)
    # timm decays the probe, for it has three axes and is on no list.
    also = ("pooling/probe",) if "siglip" in name else ()
    decayed = decayed_paths(model, also)
    seen = set()
    for path in scales:
        (found,) = {n for n in theirs(path) if n in group["params"]}
        seen.add(found)
        scale, weight_decay = group["params"][found]
        assert scales[path] == scale, path
        assert (path in decayed) is (weight_decay > 0), path
    assert seen == set(group["params"])


def test_b16_by_the_numbers():
    """E01, E02, E17: 50 kernels, for q, k and v are one; no token decays."""
    config = keras_vit.vit_config("b/16", num_registers=2, width=12, mlp_dim=12)
    model = keras_vit.ViT(config)
    scales = rate_scales(model, 0.75)
    decayed = decayed_paths(model)
    assert len(decayed) == 1 + 12 * 4 + 1
    for name in ("class_token", "register_tokens"):
        assert scales[f"{name}/token"] == pytest.approx(0.023757, abs=1e-6)
        assert f"{name}/token" not in decayed
    for i in range(12):
        assert scales[f"block_{i}/mlp/dense_1/kernel"] == 0.75 ** (12 - i)
    assert scales["norm/gamma"] == scales["head/kernel"] == 1.0
    assert rate_scales(model, 0.75, "block")["norm/gamma"] == 0.75
    distilled = filled(distillation_token=True)
    assert "distillation_token/token" not in decayed_paths(distilled)
    with_token = decayed_paths(distilled, ("distillation_token/*",))
    assert "distillation_token/token" in with_token


def train(model, optimizer, steps):
    model.compile(optimizer, keras_vit.Crossentropy())
    x, y = pictures(4, 8, 8), np.arange(4) % 5
    model.fit(x, y, batch_size=4, epochs=steps, verbose=0)
    return values(model)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_scaled(name):
    """Each variable moves as under a plain optimizer of its own rate.

    Over the steps that lead to the first move, to 1e-6 of unit weights.
    """
    steps = {"accumulating": 2, "scheduled": 2}.get(name, 1)
    ours = small()
    start, scales = values(ours), rate_scales(ours, 0.5)
    decayed = decayed_paths(ours)
    found = train(
        ours, keras_vit.layer_decay(OPTIMIZERS[name](1), ours, 0.5), steps
    )
    for scale in (0.25, 1.0):  # of one block: 0.25, 0.5, 1
        plain = small()
        optimizer = OPTIMIZERS[name](scale)
        optimizer.exclude_from_weight_decay(
            [v for v in plain.weights if v.path not in decayed]
        )
        expected = train(plain, optimizer, steps)
        for path in [p for p, s in scales.items() if s == scale]:
            np.testing.assert_allclose(
                found[path], expected[path], rtol=0, atol=1e-6, err_msg=path
            )
            assert np.abs(expected[path] - start[path]).max() > 2e-5


def small():
    return filled(image_size=8, width=8, mlp_dim=8, depth=1)


def test_saved_and_loaded(tmp_path):
    """The rates are in the file, and the next step is the same."""
    model = small()
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True)
    train(model, keras_vit.layer_decay(optimizer, model, 0.5), 1)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is type(model.optimizer)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    x, y = pictures(4, 8, 8), np.arange(4) % 5
    for each in (model, again):
        each.fit(x, y, batch_size=4, verbose=0)
    expected = values(model)
    for path, value in values(again).items():
        np.testing.assert_allclose(value, expected[path], atol=1e-6)


def test_moving_average():
    """E09: `m * w0 + (1 - m) * w1` after one step, and then on."""
    plain, model = small(), small()
    w = [values(plain)]
    optimizer = keras.optimizers.SGD(0.1)
    plain.compile(optimizer, keras_vit.Crossentropy())
    x, y = pictures(4, 8, 8), np.arange(4) % 5
    for _ in range(2):
        plain.fit(x, y, batch_size=4, verbose=0)
        w.append(values(plain))
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.75)
    model.compile(
        keras_vit.layer_decay(optimizer, model, 1.0), keras_vit.Crossentropy()
    )
    # Keras puts the average into the model at the end of `fit`.
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    for path, found in values(model).items():
        one = 0.75 * w[0][path] + 0.25 * w[1][path]
        two = 0.75 * one + 0.25 * w[2][path]
        np.testing.assert_allclose(found, two, atol=1e-6, err_msg=path)


def test_half_precision_is_scaled_once():
    """D08: inside the optimizer that scales the loss."""
    model = small()
    # Keras looks at the policy of the model, which is the global one.
    keras.config.set_dtype_policy("mixed_float16")
    half = small()
    for each in (model, half):
        optimizer = keras.optimizers.SGD(0.05)
        train(each, keras_vit.layer_decay(optimizer, each, 0.5), 1)
    assert "LossScale" in type(half.optimizer).__name__
    expected, start = values(model), values(small())
    for path, found in values(half).items():
        moved = np.abs(expected[path] - start[path]).max()
        off = np.abs(found - expected[path]).max()
        assert off < 0.05 * moved + 1e-5, path


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: rate_scales(m, 1.5), "decay=1.5"),
        (lambda m: rate_scales(m, 0.5, "body"), "norm='body'"),
        (lambda m: decayed_paths(m, ("tokens/*",)), "'tokens/"),
    ],
)
def test_errors(call, text):
    with pytest.raises(ValueError, match=text):
        call(small())


def test_variables_without_a_rate():
    """E01: what matches no row is an error, never a default."""
    model, other = small(), filled(image_size=8, width=8, mlp_dim=8, depth=2)
    optimizer = keras_vit.layer_decay(keras.optimizers.SGD(0.1), model)
    with pytest.raises(ValueError, match="block_1/norm_1/gamma"):
        optimizer.build(other.trainable_variables)
    used = keras.optimizers.SGD(0.1)
    used.build(model.trainable_variables)
    with pytest.raises(ValueError, match="has been used"):
        keras_vit.layer_decay(used, model)
    config = keras_vit.resnet_config("r26x1", stages=(1,), image_size=32)
    resnet = keras_vit.ResNetV2(config)
    with pytest.raises(TypeError, match="ResNetV2"):
        keras_vit.layer_decay(keras.optimizers.SGD(0.1), resnet)


@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.05},
        {"weight_decay": 0.0, "amsgrad": True, "epsilon": 1e-2},
        {"weight_decay": 0.1, "use_ema": True, "global_clipnorm": 1.0},
        {"weight_decay": 0.1, "gradient_accumulation_steps": 2},
    ],
)
def test_adamw_steps_as_keras_does(options):
    """Six steps by a schedule: 2e-6 of unit values, other sums of float32."""
    ends = []
    for cls in (keras.optimizers.AdamW, keras_vit.AdamW):
        rng = np.random.default_rng(0)
        kernel, bias = (
            keras.Variable(rng.normal(size=shape), dtype="float32", name=name)
            for name, shape in {"kernel": (5, 7), "bias": (7,)}.items()
        )
        rate = keras_vit.WarmUp(0.01, 9, warmup_steps=3)
        optimizer = cls(rate, name="adamw", **options)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        for _ in range(6):
            gradients = [rng.normal(size=v.shape) for v in (kernel, bias)]
            gradients = [keras.ops.cast(g, "float32") for g in gradients]
            optimizer.apply(gradients, [kernel, bias])
        state = [kernel, bias, *optimizer.variables]
        ends.append([keras.ops.convert_to_numpy(v) for v in state])
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)
    assert len(ends[0]) >= 7

"""What is measured: one row per library, each a function that makes a step.

A maker takes `Task` and returns a function that does one step and waits until
it is done. Other libraries are imported inside their makers, in a process of
their own: none of them is a dependency.
"""

import dataclasses
import functools
import importlib.util
import types
import typing

import numpy as np

LEARNING_RATE = 1e-4


@dataclasses.dataclass(frozen=True)
class Task:
    """One thing to do: a variant, a size, a batch, a mode, a dtype."""

    variant: str = "b/16"
    image_size: int = 224
    batch: int = 8
    mode: str = "infer"  # or train: forward, backward, AdamW
    dtype: str = "float32"  # or bfloat16, int8 (ours, inference)

    def images(self):
        """Random images, 0..255."""
        shape = (self.batch, self.image_size, self.image_size, 3)
        return np.random.default_rng(0).integers(0, 256, shape, "uint8")

    def labels(self):
        """Random labels of 1000 classes."""
        return np.random.default_rng(1).integers(0, 1000, self.batch)

    @property
    def policy(self):
        """The dtype policy in Keras' words."""
        return "mixed_bfloat16" if self.dtype == "bfloat16" else "float32"


def ours(task):
    """This package, on the backend of the process."""
    import keras_vit

    config = keras_vit.vit_config(
        task.variant, image_size=task.image_size, num_classes=1000
    )
    model = keras_vit.ViT(config, dtype=task.policy)
    if task.dtype == "int8":
        model.quantize("int8")
    return _keras_step(model, task, keras_vit.AdamW)


def keras_hub(task):
    """KerasHub's ViT on the backend of the process."""
    import keras
    import keras_hub

    import keras_vit

    c = keras_vit.vit_config(task.variant, image_size=task.image_size)
    keras.config.set_dtype_policy(task.policy)
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(*c.image_size, 3),
        patch_size=c.stem.patch_size,
        num_layers=c.depth,
        num_heads=c.num_heads,
        hidden_dim=c.width,
        mlp_dim=c.mlp_dim,
        dropout_rate=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-6,
    )
    x = backbone.output[:, 0]
    logits = keras.layers.Dense(1000, dtype="float32")(x)
    return _keras_step(keras.Model(backbone.input, logits), task)


def kimm(task):
    """Kimm's ViT on the backend of the process."""
    import keras
    import kimm

    keras.config.set_dtype_policy(task.policy)
    size, patch = task.variant.split("/")
    model = getattr(kimm.models, f"VisionTransformer{KIMM[size]}{patch}")(
        input_shape=(task.image_size, task.image_size, 3),
        classifier_activation="linear",
        weights=None,
    )
    return _keras_step(model, task)


KIMM = {"ti": "Tiny", "s": "Small", "b": "Base", "l": "Large"}


def flax(task):
    """Google's own ViT, `vit_jax` of google-research/vision_transformer."""
    import jax
    import jax.numpy as jnp

    model = _flax_model(task)
    images, labels = task.images(), task.labels()
    half = jnp.bfloat16 if task.dtype != "float32" else jnp.float32

    def logits(weights, x):
        x = (x.astype("float32") / 127.5 - 1).astype(half)
        weights = jax.tree.map(lambda w: w.astype(half), weights)
        return model.apply(weights, x, train=False).astype("float32")

    example = jnp.zeros((1, *images.shape[1:]))
    begin = jax.jit(lambda key: model.init(key, example, train=False))
    weights = begin(jax.random.key(0))
    if task.mode == "infer":
        infer = jax.jit(logits)
        return lambda: np.asarray(infer(weights, images))
    return _optax_step(logits, weights, images, labels)


def _flax_model(task):
    from vit_jax.models_vit import VisionTransformer

    import keras_vit

    c = keras_vit.vit_config(task.variant, image_size=task.image_size)
    return VisionTransformer(
        num_classes=1000,
        patches=types.SimpleNamespace(size=c.stem.patch_size),
        transformer={
            "num_layers": c.depth,
            "mlp_dim": c.mlp_dim,
            "num_heads": c.num_heads,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
        },
        hidden_size=c.width,
    )


def _optax_step(logits, weights, images, labels):
    """One step of training: AdamW, as the others have it."""
    import jax
    import optax

    optimizer = optax.adamw(LEARNING_RATE)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels

    def loss(weights):
        return cross_entropy(logits(weights, images), labels).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(weights, state):
        value, gradient = jax.value_and_grad(loss)(weights)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, value

    held = [weights, optimizer.init(weights)]

    def train():
        *held[:], value = update(*held)
        return float(value)

    return train


def timm(task):
    """Timm's ViT on torch."""
    return _torch_step(_timm_model(task), task)


def timm_compiled(task):
    """Timm's ViT under `torch.compile`."""
    import torch

    return _torch_step(torch.compile(_timm_model(task)), task)


def _timm_model(task):
    from timm.models.vision_transformer import VisionTransformer

    import keras_vit

    c = keras_vit.vit_config(task.variant, image_size=task.image_size)
    return VisionTransformer(
        img_size=c.image_size,
        patch_size=c.stem.patch_size[0],
        embed_dim=c.width,
        depth=c.depth,
        num_heads=c.num_heads,
        mlp_ratio=c.mlp_dim / c.width,
    )


def hugging_face(task):
    """Hugging Face's ViT on torch."""
    import transformers

    import keras_vit

    c = keras_vit.vit_config(task.variant, image_size=task.image_size)
    config = transformers.ViTConfig(
        hidden_size=c.width,
        num_hidden_layers=c.depth,
        num_attention_heads=c.num_heads,
        intermediate_size=c.mlp_dim,
        image_size=task.image_size,
        patch_size=c.stem.patch_size[0],
        num_labels=1000,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.ViTForImageClassification(config)
    return _torch_step(model, task, lambda out: out.logits)


class Row(typing.NamedTuple):
    """A library: what makes its step, what it needs, where it runs."""

    make: typing.Callable
    package: str
    backends: tuple[str, ...]


EVERYWHERE = ("jax", "tensorflow", "torch")
# fmt: off
CONTESTANTS = {
    "keras_vit":     Row(ours,          "keras_vit",    EVERYWHERE),
    "keras_hub":     Row(keras_hub,     "keras_hub",    EVERYWHERE),
    "kimm":          Row(kimm,          "kimm",         EVERYWHERE),
    "flax":          Row(flax,          "vit_jax",      ("jax",)),
    "timm":          Row(timm,          "timm",         ("torch",)),
    "timm_compiled": Row(timm_compiled, "timm",         ("torch",)),
    "hugging_face":  Row(hugging_face,  "transformers", ("torch",)),
}
# fmt: on


def installed(backend):
    """Names of the contestants that can run here, ours first."""
    return [
        name
        for name, row in CONTESTANTS.items()
        if backend in row.backends
        and importlib.util.find_spec(row.package) is not None
    ]


def _keras_step(model, task, adamw=None):
    import keras

    images, labels = task.images(), task.labels()
    # Keras leaves XLA off on TensorFlow's CPU; on torch it is best left off.
    jit = keras.config.backend() != "torch"
    if task.mode == "infer":
        model.compile(jit_compile=jit)
        return lambda: model.predict_on_batch(images)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = (adamw or keras.optimizers.AdamW)(LEARNING_RATE)
    model.compile(optimizer, loss, jit_compile=jit)
    # The value is read, so that the step is over.
    return lambda: float(model.train_on_batch(images, labels))


def _torch_step(model, task, logits=lambda out: out):
    import torch

    images = torch.from_numpy(task.images()).permute(0, 3, 1, 2)
    labels = torch.from_numpy(task.labels())
    half = torch.autocast("cpu", torch.bfloat16, task.dtype != "float32")
    if task.mode == "infer":
        model.eval()

        def infer():
            with torch.inference_mode(), half:
                logits(model(images.float() / 127.5 - 1))

        return infer
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, fused=True)

    def train():
        optimizer.zero_grad()
        with half:
            out = logits(model(images.float() / 127.5 - 1))
            loss = torch.nn.functional.cross_entropy(out.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return train

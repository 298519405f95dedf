"""Learning rates over a run: up in a line, then down."""

import math
import warnings

import keras
from keras import ops

from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice

DECAYS = ("cosine", "linear", "rsqrt", "constant")
ADAMS = ("Adam", "Nadam", "Lamb", "Lion")  # steps of the size of the rate
HIGH = 1e-3


@keras.saving.register_keras_serializable("keras_vit")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rises in a line from 0 to the base rate, then falls.

    `step / warmup_steps` of the rate for the first steps; after them, over
    `t` from 0 to 1: `cosine` is `(1 + cos(pi t)) / 2`, `linear` is `1 - t`,
    `rsqrt` is `sqrt(timescale / (timescale + steps since the warm-up))`, times
    a line to 0 over the last `warmup_steps`; `constant` stays.

    Args:
        rate: Float, the highest learning rate.
        steps: Int, optimizer steps of the whole run; the rate is 0 from there
            on, except for `"constant"`.
        warmup_steps: Int, less than `steps`. The paper: 10,000 (ImageNet,
            ImageNet-21k, JFT), 500 to fine-tune.
        decay: `"cosine"` (paper's fine-tuning, DeiT, MAE), `"linear"` (paper's
            pre-training), `"rsqrt"` (big_vision, any length) or `"constant"`.
        timescale: Int, of `"rsqrt"`.

    Raises:
        ValueError: Unknown decay, or steps that do not fit.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), B.1
        - [Zhai et al., 2022](https://arxiv.org/abs/2106.04560), section 3.5

    Example:
    ```python
    schedule = keras_vit.WarmUp(1e-3, steps=1000, warmup_steps=100)
    optimizer = keras.optimizers.AdamW(schedule)
    ```
    """

    def __init__(
        self, rate, steps, warmup_steps=0, decay="cosine", timescale=10_000
    ):
        super().__init__()
        check_choice("decay", decay, DECAYS)
        check_at_least("warmup_steps", warmup_steps, 0)
        check_at_least("steps", steps, 1)
        if warmup_steps >= steps:
            raise ValueError(
                f"There is no time left to learn. Expected: fewer steps of "
                f"warm-up than in all. Received: warmup_steps={warmup_steps}, "
                f"steps={steps}."
            )
        self.rate = rate
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.decay = decay
        self.timescale = timescale

    def __call__(self, step):
        step = ops.cast(step, "float32")
        after = step - self.warmup_steps
        t = ops.clip(after / (self.steps - self.warmup_steps), 0.0, 1.0)
        up = ops.clip(step / max(self.warmup_steps, 1), 0.0, 1.0)
        if not self.warmup_steps:
            up = ops.ones_like(up)
        if self.decay == "cosine":
            down = 0.5 * (1.0 + ops.cos(math.pi * t))
        elif self.decay == "linear":
            down = 1.0 - t
        elif self.decay == "rsqrt":
            since = ops.maximum(after, 0.0)
            down = ops.sqrt(self.timescale / (self.timescale + since))
            left = (self.steps - step) / max(self.warmup_steps, 1)
            down = down * ops.clip(left, 0.0, 1.0)
        else:
            down = ops.ones_like(t)
        return self.rate * up * down

    def get_config(self):
        return {
            "rate": self.rate,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "decay": self.decay,
            "timescale": self.timescale,
        }


def scaled_rate(rate, batch_size, reference=512):
    """Returns the learning rate for a batch of another size: in proportion.

    Args:
        rate: Float, for a batch of `reference` images.
        batch_size: Int, images per optimizer step: of all devices and of all
            accumulated gradients.
        reference: Int, the batch that `rate` was found for: 512 in the
            paper's fine-tuning, 4096 in its pre-training, 256 in MAE.

    References:
        - [Goyal et al., 2017](https://arxiv.org/abs/1706.02677)
    """
    check_at_least("batch_size", batch_size, 1)
    return rate * batch_size / reference


def check_rate_for(optimizer, pretrained):
    """Warns of a rate that wrecks a pretrained ViT in its first steps.

    Args:
        optimizer: A `keras.optimizers.Optimizer`.
        pretrained: Whether the model has trained weights.
    """
    schedule = optimizer.get_config()["learning_rate"]
    rate = optimizer.learning_rate
    if isinstance(schedule, dict):
        rate = schedule["config"].get("rate", rate)
    rate = float(ops.convert_to_numpy(rate))
    adam = any(name in type(optimizer).__name__ for name in ADAMS)
    if pretrained and adam and rate > HIGH:
        warnings.warn(
            f"This learning rate unlearns what a pretrained ViT knows. "
            f"Expected: at most {HIGH:g} with {type(optimizer).__name__}, "
            f"rather 1e-5 to 3e-4. Received: {rate:g}.",
            UserWarning,
            stacklevel=2,
        )

"""Vision Transformers for Keras 3, on JAX, TensorFlow and PyTorch."""

import contextlib
import importlib.util
import json
import os
import pathlib
import sys


def _choose_backend():
    """Takes an installed backend where the configured one is missing.

    At its first import Keras writes a `keras.json` that says TensorFlow,
    whatever is installed; only `KERAS_BACKEND` is surely somebody's choice.
    """
    if os.environ.get("KERAS_BACKEND") or "keras" in sys.modules:
        return
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    configured = "tensorflow"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        text = (pathlib.Path(home) / "keras.json").read_text("utf-8")
        configured = json.loads(text).get("backend", configured)
    for name in (configured, "jax", "torch"):
        if importlib.util.find_spec(name):
            os.environ["KERAS_BACKEND"] = name
            return


_choose_backend()

import keras  # noqa: E402

if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 12):
    raise ImportError(
        f"keras_vit needs a newer Keras. Expected: keras >= 3.12. Received: "
        f"keras {keras.__version__}. Run `pip install -U keras`, and unset "
        f"TF_USE_LEGACY_KERAS."
    )

from keras_vit import data  # noqa: E402
from keras_vit import layers  # noqa: E402
from keras_vit.analysis import attention_distance  # noqa: E402
from keras_vit.analysis import attention_entropy  # noqa: E402
from keras_vit.analysis import attention_maps  # noqa: E402
from keras_vit.analysis import attention_rollout  # noqa: E402
from keras_vit.analysis import class_attention  # noqa: E402
from keras_vit.analysis import class_relevance  # noqa: E402
from keras_vit.analysis import effective_receptive_field  # noqa: E402
from keras_vit.analysis import layer_cka  # noqa: E402
from keras_vit.analysis import linear_cka  # noqa: E402
from keras_vit.analysis import patch_filters  # noqa: E402
from keras_vit.analysis import position_similarity  # noqa: E402
from keras_vit.checkpoints import load_checkpoint  # noqa: E402
from keras_vit.checkpoints import load_weights  # noqa: E402
from keras_vit.checkpoints import save_checkpoint  # noqa: E402
from keras_vit.config import ViTConfig  # noqa: E402
from keras_vit.config_parts import BlockConfig  # noqa: E402
from keras_vit.config_parts import HeadConfig  # noqa: E402
from keras_vit.config_parts import PixelConfig  # noqa: E402
from keras_vit.config_parts import StemConfig  # noqa: E402
from keras_vit.config_parts import TokenConfig  # noqa: E402
from keras_vit.config_parts import TrunkConfig  # noqa: E402
from keras_vit.costs import count_macs  # noqa: E402
from keras_vit.costs import count_params  # noqa: E402
from keras_vit.devices import layout_map  # noqa: E402
from keras_vit.devices import use_devices  # noqa: E402
from keras_vit.evaluation import accuracy  # noqa: E402
from keras_vit.evaluation import few_shot  # noqa: E402
from keras_vit.evaluation import knn  # noqa: E402
from keras_vit.imagenet import imagenet_labels  # noqa: E402
from keras_vit.imagenet import real_accuracy  # noqa: E402
from keras_vit.labels import top_labels  # noqa: E402
from keras_vit.pixels import load_images  # noqa: E402
from keras_vit.presets import list_presets  # noqa: E402
from keras_vit.presets import sample_images  # noqa: E402
from keras_vit.pretraining import Distiller  # noqa: E402
from keras_vit.pretraining import MaskedAutoencoder  # noqa: E402
from keras_vit.pretraining import MaskedPatchPrediction  # noqa: E402
from keras_vit.resampling import resample  # noqa: E402
from keras_vit.resnet import ResNetV2  # noqa: E402
from keras_vit.resnet_config import ResNetConfig  # noqa: E402
from keras_vit.resnet_config import resnet_config  # noqa: E402
from keras_vit.runs import finetune  # noqa: E402
from keras_vit.runs import train  # noqa: E402
from keras_vit.training import AdamW  # noqa: E402
from keras_vit.training import Crossentropy  # noqa: E402
from keras_vit.training import Mix  # noqa: E402
from keras_vit.training import WarmUp  # noqa: E402
from keras_vit.training import freeze  # noqa: E402
from keras_vit.training import layer_decay  # noqa: E402
from keras_vit.training import scaled_rate  # noqa: E402
from keras_vit.variants import SIZES  # noqa: E402
from keras_vit.variants import vit_config  # noqa: E402
from keras_vit.version import __version__  # noqa: E402
from keras_vit.vit import ViT  # noqa: E402

__all__ = [
    "AdamW",
    "BlockConfig",
    "Crossentropy",
    "Distiller",
    "HeadConfig",
    "MaskedAutoencoder",
    "MaskedPatchPrediction",
    "Mix",
    "PixelConfig",
    "ResNetConfig",
    "ResNetV2",
    "SIZES",
    "StemConfig",
    "TokenConfig",
    "TrunkConfig",
    "ViT",
    "ViTConfig",
    "WarmUp",
    "__version__",
    "accuracy",
    "attention_distance",
    "attention_entropy",
    "attention_maps",
    "attention_rollout",
    "class_attention",
    "class_relevance",
    "count_macs",
    "count_params",
    "data",
    "effective_receptive_field",
    "few_shot",
    "finetune",
    "freeze",
    "imagenet_labels",
    "knn",
    "layer_cka",
    "layer_decay",
    "layers",
    "layout_map",
    "linear_cka",
    "list_presets",
    "load_checkpoint",
    "load_images",
    "load_weights",
    "patch_filters",
    "position_similarity",
    "real_accuracy",
    "resample",
    "resnet_config",
    "sample_images",
    "save_checkpoint",
    "scaled_rate",
    "top_labels",
    "train",
    "use_devices",
    "vit_config",
]

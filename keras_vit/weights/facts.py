"""What the config beside a checkpoint says: timm's and Hugging Face's."""

import json
import pathlib
import re
import typing

# Names of theirs -> fields of ours.
HF_FIELDS = {
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "depth",
    "num_register_tokens": "num_registers",
    "layer_norm_eps": "epsilon",
    "image_size": "image_size",
}
HF_ACTIVATIONS = {
    "gelu": "gelu",
    "quick_gelu": "quick_gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
PILLOW_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
TIMM_POOLINGS = {"token": "token", "avg": "gap", "map": "map"}
# What only the name of a timm architecture says.
TIMM_ARCHITECTURES = (
    ("_clip_", {"epsilon": 1e-5}),
    ("quickgelu", {"activation": "quick_gelu"}),
    ("giantopt", {"num_heads": 16, "activation": "gelu_tanh"}),
    ("base_patch32_siglip", {"activation": "gelu_tanh"}),
    ("large_patch16_siglip_512", {"activation": "gelu_tanh"}),
    ("large_patch16_siglip_gap_512", {"activation": "gelu_tanh"}),
    ("so400m_patch16_siglip", {"activation": "gelu_tanh"}),
)


class Facts(typing.NamedTuple):
    """Fields of `ViTConfig` that a folder's config gives, and its labels."""

    fields: dict
    labels: tuple[str, ...] | None
    source: str


def folder_facts(folder: pathlib.Path) -> Facts:
    """Reads `config.json` (and `preprocessor_config.json`) of a folder.

    Raises:
        ValueError: A config that is not JSON, or an activation unknown here.
    """
    config = _read(folder / "config.json")
    if not isinstance(config, dict):
        return Facts({}, None, "")
    if "architecture" in config:
        return Facts(_timm(config), _timm_labels(config), "timm config.json")
    if "model_type" in config or "architectures" in config:
        fields = _hf(config)
        fields |= _hf_pixels(_read(folder / "preprocessor_config.json"))
        return Facts(fields, _hf_labels(config), "Hugging Face config.json")
    return Facts({}, None, "")


def _read(path):
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"Cannot read the config beside the weights. Expected: JSON. "
            f"Received: {path}, which fails with: {error}. Fetch it again, or "
            f"move the weights to a folder of their own."
        ) from error


def _hf(config):
    config = config.get("vision_config") or config
    fields = {
        ours: config[theirs]
        for theirs, ours in HF_FIELDS.items()
        if config.get(theirs) is not None
    }
    act = config.get("hidden_act")
    if act is not None and not config.get("use_swiglu_ffn"):
        if act not in HF_ACTIVATIONS:
            raise ValueError(
                f"This activation is not one of ours. Expected: one of "
                f"{', '.join(HF_ACTIVATIONS)}. Received: hidden_act={act!r}."
            )
        fields["activation"] = HF_ACTIVATIONS[act]
    return fields


def _hf_pixels(config):
    if not isinstance(config, dict):
        return {}
    fields = {}
    if "image_mean" in config and "image_std" in config:
        fields["mean"] = tuple(config["image_mean"])
        fields["std"] = tuple(config["image_std"])
    if config.get("resample") in PILLOW_FILTERS:
        fields["interpolation"] = PILLOW_FILTERS[config["resample"]]
    crops = config.get("do_center_crop")
    fields["resize"] = "crop" if crops else "squash"
    resized, cropped = _side(config.get("size")), _side(config.get("crop_size"))
    if crops and resized and cropped and cropped <= resized:
        fields["crop_fraction"] = cropped / resized
    return fields


def _side(size):
    if isinstance(size, dict):
        return size.get("shortest_edge") or size.get("height")
    return size


def _hf_labels(config):
    labels = config.get("id2label")
    if not isinstance(labels, dict):
        return None
    names = [labels.get(str(i)) for i in range(len(labels))]
    if None in names or names == [f"LABEL_{i}" for i in range(len(names))]:
        return None
    return tuple(map(str, names))


def _timm(config):
    args, cfg = config.get("model_args", {}), config.get("pretrained_cfg", {})
    fields = _timm_pixels(cfg)
    if "num_heads" in args:
        fields["num_heads"] = args["num_heads"]
    size = args.get("img_size") or cfg.get("input_size", [None])[1:]
    if size:
        fields["image_size"] = size
    registers = re.search(r"_reg(\d+)_", config["architecture"])
    if registers:
        fields["num_registers"] = int(registers[1])
    pooling = TIMM_POOLINGS.get(config.get("global_pool", ""))
    if pooling:
        fields["pooling"] = pooling
    for part, known in TIMM_ARCHITECTURES:
        if part in config["architecture"]:
            fields |= known
    return fields


def _timm_pixels(cfg):
    fields = {n: tuple(cfg[n]) for n in ("mean", "std") if n in cfg}
    if cfg.get("interpolation") in ("bilinear", "bicubic", "lanczos"):
        fields["interpolation"] = cfg["interpolation"]
    if "crop_pct" in cfg:
        fields["crop_fraction"] = cfg["crop_pct"]
    squash = cfg.get("crop_mode") == "squash"
    fields["resize"] = "squash" if squash else "crop"
    return fields


def _timm_labels(config):
    names = config.get("label_names")
    shown = config.get("label_descriptions") or {}
    return tuple(shown.get(n, n) for n in names) if names else None

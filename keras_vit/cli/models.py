"""Commands about models: list, info, convert."""

import ast
import json
import os

from keras_vit.cli.tables import print_table
from keras_vit.cli.tables import short


def list_command(args):
    """Prints the presets that match a pattern."""
    import keras_vit

    found = keras_vit.list_presets(args.pattern)
    if not found:
        raise ValueError(
            f"No preset matches. Expected: a shell pattern such as '*b16*'. "
            f"Received: {args.pattern!r}. `keras-vit list` shows all."
        )
    rows = [_facts(name, preset) for name, preset in found.items()]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print_table(
        [["preset", "pixels", "params", "GFLOPs", "top-1", "licence"]]
        + [
            [
                row["preset"],
                "x".join(map(str, row["image_size"])),
                short(row["params"]),
                f"{row['gflops']:.3g}",
                "" if row["top_1"] is None else f"{row['top_1']:.2f}",
                row["license"],
            ]
            for row in rows
        ]
    )
    return 0


def _facts(name, preset):
    import keras_vit

    config = preset.config
    return {
        "preset": name,
        "image_size": list(config.image_size),
        "params": keras_vit.count_params(config),
        "gflops": 2 * keras_vit.count_macs(config) / 1e9,
        "top_1": preset.top_1,
        "dataset": preset.dataset,
        "license": preset.license,
        "source": preset.source,
    }


def info(args):
    """Prints what a preset, a directory or a variant is and costs."""
    import keras_vit

    config = _config_of(args.model)
    if args.image_size:
        config = config.replace(image_size=args.image_size)
    facts = {
        "model": args.model,
        "params": keras_vit.count_params(config),
        "params_without_head": keras_vit.count_params(
            config.replace(num_classes=0)
        ),
        "gmacs": keras_vit.count_macs(config) / 1e9,
        "gflops": 2 * keras_vit.count_macs(config) / 1e9,
        "config": config.to_dict(),
    }
    rows = []
    if isinstance(config, keras_vit.ViTConfig):
        facts |= {"tokens": config.num_tokens, "grid": list(config.grid)}
        rows = _token_rows(config)
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    _print_facts(facts, config, rows)
    if args.full:
        print(config)
    return 0


def _token_rows(config):
    rows, columns = config.grid
    return [
        ["patches", f"{rows} x {columns} of {config.stem.patch_size}"],
        ["tokens", f"{config.num_tokens} ({config.num_prefix} in front)"],
        ["blocks", f"{config.depth} of width {config.width}"],
    ]


def _print_facts(facts, config, rows):
    height, width = config.image_size
    print_table(
        [
            ["model", facts["model"]],
            ["image", f"{height} x {width} pixels"],
            *rows,
            ["parameters", f"{facts['params']:,}"],
            ["without head", f"{facts['params_without_head']:,}"],
            ["multiply-adds", f"{facts['gmacs']:.3f} G per image"],
            [
                "FLOPs",
                f"{facts['gflops']:.3f} G per image (2 per multiply-add)",
            ],
        ]
    )


def _config_of(name):
    import keras_vit
    from keras_vit.preset_files import read_preset
    from keras_vit.presets import find_preset

    if os.path.isdir(name):
        config, _ = read_preset(name, "ViT")
        return keras_vit.ViTConfig.from_dict(config["config"])
    size, _, patch = name.partition("/")
    if patch.isdigit() and ":" not in name:
        return keras_vit.vit_config(name)
    return find_preset(name).config


def convert(args):
    """Writes a checkpoint as another library reads it."""
    import keras_vit

    facts = dict(map(_assignment, args.set))
    if os.path.isfile(args.source):
        model = keras_vit.load_checkpoint(args.source, **facts)
        print(model.report)
    else:
        model = keras_vit.ViT.from_preset(args.source, **facts)
    keras_vit.save_checkpoint(model, args.target, args.format, args.prefix)
    print(f"{args.target}: {args.format} layout, {short(model.count_params())}")
    return 0


def _assignment(text):
    name, between, value = text.partition("=")
    if not between:
        raise ValueError(
            f"A field needs a value. Expected: --set name=value. Received: "
            f"{text!r}."
        )
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # a word, such as activation=gelu_tanh

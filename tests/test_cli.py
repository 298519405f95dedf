"""The command line: what it prints, where, and with which exit code."""

import json
import re

import pytest

import keras_vit
from keras_vit.cli import main

NANO = "vit_nano_fashion_mnist"
BOOT = str(keras_vit.sample_images()[0])


def test_predict_table(capsys):
    assert main(["predict", BOOT, "--top", "2"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r".*ankle_boot\.png( +[\w/ -]+ \d+\.\d%){2}\n", out)
    assert err == ""


def test_predict_json_is_one_object_a_line(capsys):
    assert main(["predict", BOOT, BOOT, "--json", "--top", "3"]) == 0
    rows = [json.loads(r) for r in capsys.readouterr().out.splitlines()]
    assert [len(row["labels"]) for row in rows] == [3, 3]
    assert 0 < rows[0]["labels"][0]["probability"] <= 1


def test_unreadable_images_do_not_stop_the_others(capsys, tmp_path):
    """F07: the bad file is named, the good one labelled, exit code 1."""
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n")
    assert main(["predict", str(bad), BOOT]) == 1
    out, err = capsys.readouterr()
    assert str(bad) in err
    assert "ankle_boot" in out
    assert "bad.png" not in out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["predict", "missing.png"], "No such file"),
        (["predict", BOOT, "--preset", "vit_nano"], "Did you mean"),
        (["list", "nothing*"], "No preset matches"),
        (["info", "q/16"], "No such variant"),
        (["info", "b/16", "--image-size", "225"], "224 and 240"),
    ],
)
def test_failures_say_what_to_do(capsys, arguments, match):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert match in err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [[], ["predict"], ["info", "--no"]])
def test_usage_errors_exit_with_2(arguments):
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2


def test_folders_are_taken(capsys):
    folder = str(keras_vit.sample_images()[0].parent)
    assert main(["predict", folder]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_list(capsys):
    assert main(["list", "*nano*"]) == 0
    assert NANO in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["preset"] for r in rows] == list(keras_vit.list_presets())


def test_info_gives_published_figures(capsys):
    """Parameters of table 1 of the paper, with and without head."""
    assert main(["info", "b/16", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["params"] == 86_567_656
    assert facts["params_without_head"] == 85_798_656
    assert facts["tokens"] == 197
    assert main(["info", "B/16", "--image-size", "384", "--full"]) == 0
    out = capsys.readouterr().out
    assert "577 (1 in front)" in out
    assert '"epsilon": 1e-06' in out


def test_info_of_a_directory(capsys, tmp_path):
    config = keras_vit.vit_config("nano/4", image_size=8, depth=1)
    keras_vit.ViT(config).save_to_preset(tmp_path / "mine")
    assert main(["info", str(tmp_path / "mine"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["params"] == keras_vit.count_params(config)


def test_convert(capsys, tmp_path):
    """The report, then a file that another library reads; and back."""
    config = keras_vit.vit_config("nano/4", image_size=8, depth=2)
    source = tmp_path / "google.npz"
    keras_vit.save_checkpoint(keras_vit.ViT(config), source, "google")
    target = tmp_path / "model.safetensors"
    assert main(["convert", str(source), str(target), "--format", "timm"]) == 0
    out, err = capsys.readouterr()
    assert "google layout" in out
    assert str(target) in out
    again = ["convert", str(target), str(tmp_path / "hf.npz")]
    assert main([*again, "--format", "hf", "--set", "num_heads=2"]) == 0
    assert main([*again, "--format", "hff", "--set", "num_heads=2"]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert main([*again, "--set", "num_heads"]) == 2
    assert "name=value" in capsys.readouterr().err

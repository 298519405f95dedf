"""The benchmark measures, in turn, and says so when something fails.

No assertion on a time: machines differ, and are busy.
"""

import json

import keras
import pytest

import keras_vit
from keras_vit.benchmark import benchmark
from keras_vit.benchmark import contestants
from keras_vit.benchmark import task_of
from keras_vit.cli import main

SMALL = {"variant": "nano/4", "image_size": 28, "batch": 2}


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_rows_add_up(mode):
    """Of one run: rates, ratios and the floor follow from the medians."""
    (row,) = benchmark(task_of(**SMALL, mode=mode), peers=[], rounds=3)
    assert row["name"] == "keras_vit"
    assert 0 < row["low"] <= row["ms"] <= row["high"]
    assert row["images_per_second"] == pytest.approx(2000 / row["ms"])
    assert row["ratio"] == 1
    assert 0 < row["floor"] < 1
    assert row["first"] > 0
    assert row["peak"] > 2**26


@pytest.mark.once
def test_floor_is_the_work_at_the_speed_of_a_product(monkeypatch):
    from keras_vit.benchmark import run

    task = task_of(variant="b/16", batch=8, mode="train")
    times = {"times": [1.0, 2.0, 3.0], "first": 0, "peak": 0}
    product = {"times": [0.5] * 3, "first": 0, "peak": 0}
    results = {
        run.FLOOR: product,
        "keras_vit": times,
        "other": {**times, "times": [3.0, 3.0, 3.0]},
    }
    ours, other = run._rows(task, ["keras_vit", "other"], results)
    macs = keras_vit.count_macs(keras_vit.vit_config("b/16"))
    seconds = 3 * 8 * macs / (2048**3 / 0.5)
    assert ours["floor"] == pytest.approx(seconds / 2)
    assert other["ratio"] == pytest.approx(1.5)
    assert ours["ms"] == 2000


@pytest.mark.once
def test_command_line(capsys):
    words = ["benchmark", "--variant", "nano/4", "--image-size", "28"]
    words += ["--batch", "1", "2", "--rounds", "2", "--peers"]
    assert main([*words, "--json"]) == 0
    rows = [json.loads(s) for s in capsys.readouterr().out.splitlines()]
    assert [row["batch"] for row in rows] == [1, 2]
    assert {row["dtype"] for row in rows} == {"float32"}


@pytest.mark.once
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--peers", "tim"], "mean 'timm'"),
        (["--mode", "trian"], "mean 'train'"),
        (["--dtype", "float8"], "float32, bfloat16"),
        (
            ["--dtype", "int8", "--mode", "train"],
            "mode 'train' with dtype int8",
        ),
        (["--variant", "x/16"], "No such variant"),
    ],
)
def test_words_that_are_not_known(words, said, capsys):
    assert main(["benchmark", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.once
def test_peers_are_asked_only_where_they_are(monkeypatch):
    assert contestants.installed(keras.config.backend())[0] == "keras_vit"
    monkeypatch.setattr(
        contestants.importlib.util, "find_spec", lambda name: None
    )
    assert contestants.installed("torch") == []
    with pytest.raises(ValueError, match="'timm'; there are none"):
        benchmark(task_of(**SMALL), peers=["timm"])


@pytest.mark.once
def test_int8_is_ours_alone():
    task = task_of(**SMALL, dtype="int8")
    assert task.policy == "float32"
    (row,) = benchmark(task, rounds=2)
    assert row["name"] == "keras_vit"
    with pytest.raises(ValueError, match="int8.*timm"):
        benchmark(task, peers=["timm"])


@pytest.mark.once
def test_what_fails_is_named(monkeypatch):
    task = task_of(**SMALL)
    bad = contestants.dataclasses.replace(task, image_size=29)
    with pytest.raises(RuntimeError, match="keras_vit to run.*29"):
        benchmark(bad, peers=[], rounds=1)


@pytest.mark.once
def test_a_peer_that_fails_is_left_out(monkeypatch, caplog):
    """Unless it was asked for by name."""
    monkeypatch.setattr("keras_vit.benchmark.run.installed", lambda _: ["kimm"])
    (row,) = benchmark(task_of(**SMALL), rounds=2)
    assert row["name"] == "keras_vit"
    assert "left out: A contestant has failed" in caplog.text
    with pytest.raises(RuntimeError, match="kimm"):
        benchmark(task_of(**SMALL), peers=["kimm"], rounds=2)

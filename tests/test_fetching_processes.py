"""Two processes at once, and one that is killed."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import loopback
import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
BODY = random.Random(1).randbytes(300_000)
# Without keras_vit/__init__.py, which would load a backend for seconds.
SCRIPT = f"""
import sys, types
package = types.ModuleType("keras_vit")
package.__path__ = [{str(ROOT / "keras_vit")!r}]
sys.modules["keras_vit"] = package
from keras_vit.fetching import fetch
print(fetch(sys.argv[1]))
"""


@pytest.fixture
def server():
    with loopback.Loopback() as server:
        yield server


@pytest.fixture
def start(tmp_path, server):
    running = []

    def start(address, **environment):
        command = [sys.executable, "-c", SCRIPT, address]
        process = subprocess.Popen(
            command,
            env={
                "HF_ENDPOINT": server.url,
                "HF_HOME": str(tmp_path / "hf"),
                "KERAS_VIT_BUCKETS": server.url,
                "KERAS_VIT_HOME": str(tmp_path / "cache"),
                "PATH": "",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "nothing happened in 20 seconds"
        time.sleep(0.01)


def held(server, path, body):
    """A file that comes by half, then waits to be let go."""
    import threading

    go = threading.Event()

    def answer(handler, item):
        handler.serve(item, limit=len(body) // 2)
        go.wait(20)
        handler.send(body[len(body) // 2 :])

    server.add_bucket(path, body, answer)
    return go


def test_two_processes_fetch_once(server, start):
    go = held(server, "/b/x.npz", BODY)
    first = start("gs://b/x.npz")
    wait_for(lambda: server.sent)
    second = start("gs://b/x.npz")
    time.sleep(1.0)  # for the second to get to the lock
    go.set()
    paths = [p.communicate(timeout=20)[0].strip() for p in (first, second)]
    assert paths[0] == paths[1]
    assert pathlib.Path(paths[0]).read_bytes() == BODY
    assert len(server.gets("/b/x.npz")) == 1


def test_a_killed_download_is_gone_on_with(server, start, tmp_path):
    go = held(server, "/b/x.npz", BODY)
    first = start("gs://b/x.npz")
    part = tmp_path / "cache/gs/b/x.npz.part"
    wait_for(lambda: part.exists() and part.stat().st_size >= 100_000)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    go.set()
    came = part.stat().st_size
    path = start("gs://b/x.npz").communicate(timeout=20)[0].strip()
    assert pathlib.Path(path).read_bytes() == BODY
    assert server.gets("/b/x.npz")[1]["Range"] == f"bytes={came}-"


def test_the_hubs_own_environment(server, start, tmp_path):
    """C10: HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE are honoured."""
    files = {"config.json": b"{}", "model.safetensors": BODY}
    server.add_repository("me/vit", files)
    first = start("hf://me/vit", HF_TOKEN="hf_word")
    folder = pathlib.Path(first.communicate(timeout=20)[0].strip())
    assert (folder / "model.safetensors").read_bytes() == BODY
    assert tmp_path / "hf" in folder.parents
    asked = [row for row in server.log if "me/vit" in row[1]]
    assert {h.get("authorization") for _, _, h in asked} == {"Bearer hf_word"}
    count = len(server.log)
    again = start("hf://me/vit", HF_HUB_OFFLINE="1")
    assert again.communicate(timeout=20)[0].strip() == str(folder)
    missing = start("hf://me/other", HF_HUB_OFFLINE="1")
    said = missing.communicate(timeout=20)[1]
    assert "offline mode is on" in said
    assert len(server.log) == count

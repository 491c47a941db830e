# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The reporters' files, read by the programs they are for: tensorboard, and `wandb sync`.

report_test writes them: a first start reports steps 1 to 6, a second one continues after
step 4 and reports steps 5 to 400, then an evaluation and a text.
"""
import gzip
import json
import math
import os
import subprocess
import sys
import threading
import xml.etree.ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from conftest import BUILD

LAST = 400
LOSSES = {step: 100.0 + step if step <= 4 else 8 / step for step in range(1, LAST + 1)}


def clean_environment(**changes):
    """Without the variables that reporters honour."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("WANDB_", "TENSORBOARD_", "GTEST_"))}
    return kept | changes


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    program = BUILD / "tests/report_test"
    assert program.exists(), f"{program} is not built: run `make`, or set SKEIN_BUILD"
    result = subprocess.run([program, "--gtest_filter=ReportersTest.TwoStarts"],
                            env=clean_environment(SKEIN_TEST_OUT=str(folder), WANDB_TAGS="a,b"),
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "1 test" in result.stdout, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def events(output):
    accumulator = EventAccumulator(str(output / "runs"), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


def hparams_of(events, name):
    return plugin_data_pb2.HParamsPluginData.FromString(
        events.SummaryMetadata(f"_hparams_/{name}").plugin_data.content)


def test_tensorboard_scalars_and_purge(events):
    read = {e.step: e.value for e in events.Scalars("train/loss")}
    # The first start's steps 5 and 6 are gone: the second file purged them.
    assert len(events.Scalars("train/loss")) == LAST
    assert read == pytest.approx(LOSSES, rel=1e-6)
    assert [(e.step, e.value) for e in events.Scalars("eval/loss")] == [(LAST, 0.25)]
    assert math.isnan({e.step: e.value for e in events.Scalars("train/grad_norm")}[7])


def test_tensorboard_text(events):
    assert set(events.PluginTagToContent("text")) == {"config", "samples"}
    [sample] = events.Tensors("samples")
    assert sample.step == LAST
    assert sample.tensor_proto.string_val[0].decode() == "**once** upon 从前"
    assert "name: 训练" in events.Tensors("config")[0].tensor_proto.string_val[0].decode()


def test_tensorboard_hparams(events):
    start = hparams_of(events, "session_start_info").session_start_info
    assert start.hparams["learning_rate"].number_value == 1e-3
    assert start.hparams["bf16"].bool_value is True
    assert start.hparams["lr_scheduler_type"].string_value == 'cosine "quoted" 中文'
    experiment = hparams_of(events, "experiment").experiment
    assert [m.name.tag for m in experiment.metric_infos] == ["train/loss", "eval/loss"]
    assert hparams_of(events, "session_end_info").session_end_info.status == 1  # success


class Server(ThreadingHTTPServer):
    """As much of W&B's server as `wandb sync` needs; keeps what was uploaded."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.history, self.uploads, self.run, self.exit_code = [], {}, {}, None


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw

    def do_GET(self):
        self.answer({})

    def do_PUT(self):
        self.server.uploads[self.path.rsplit("/", 1)[1]] = self.body().decode()
        self.answer({})

    def do_POST(self):
        body = json.loads(self.body())
        if self.path == "/graphql":
            return self.answer({"data": self.graphql(body["query"], body["variables"])})
        if self.path.endswith("/file_stream"):
            lines = body.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.server.history += map(json.loads, lines)
            if body.get("complete"):
                self.server.exit_code = body["exitcode"]
        self.answer({})

    def graphql(self, query, variables):
        if "upsertBucket" in query:
            self.server.run.update({k: v for k, v in variables.items() if v is not None})
            project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "x", "name": variables["name"], "displayName": variables["displayName"],
                      "config": "{}", "project": project, "historyLineCount": 0}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.server.address}/upload/{name}"}
                     for name in variables["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        return {}


@pytest.fixture(scope="module")
def synced(output, tmp_path_factory):
    """What W&B's own client uploads of the newest run folder."""
    home = tmp_path_factory.mktemp("home")
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    newest = sorted((output / "wandb").glob("offline-run-*"))[-1]
    environment = clean_environment(HOME=str(home), WANDB_BASE_URL=server.address,
                                    WANDB_API_KEY="0" * 40, WANDB_ENTITY="me",
                                    WANDB_ERROR_REPORTING="false")
    try:
        result = subprocess.run([Path(sys.executable).parent / "wandb", "sync", newest], cwd=home,
                                env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=120)
    finally:
        server.shutdown()
    assert result.returncode == 0 and "Finished syncing" in result.stderr, (
        result.stdout + result.stderr)
    return server


def test_wandb_history(synced):
    *training, evaluation = synced.history
    losses = {row["train/global_step"]: row["train/loss"] for row in training}
    assert losses == LOSSES  # the first start's steps 1 to 4 too, and not its 5 and 6
    assert all(row["_step"] == row["train/global_step"] for row in training)
    # The client makes _step unique; charts are drawn over train/global_step.
    assert (evaluation["eval/loss"], evaluation["train/global_step"]) == (0.25, LAST)
    [seventh] = [row for row in synced.history if row["_step"] == 7]
    assert math.isnan(seventh["train/grad_norm"])
    assert seventh["train/learning_rate"] == pytest.approx(7e-3)


def test_wandb_run_summary_and_end(synced, output):
    assert synced.run["displayName"] == "parity run"
    assert synced.run["project"] == "skein"
    assert synced.run["tags"] == ["a", "b"]
    memory = json.loads((output / "wandb/wandb-resume.json").read_text())
    assert synced.run["name"] == memory["run_id"]
    summary = json.loads(synced.uploads["wandb-summary.json"])
    assert (summary["train/loss"], summary["eval/loss"]) == (0.02, 0.25)
    assert summary["train/global_step"] == LAST
    assert "learning_rate:\n    value: 0.001" in synced.uploads["config.yaml"]
    assert 'cosine "quoted" 中文' in synced.uploads["config.yaml"]
    # How W&B stores that all charts ("*") are drawn over the first metric.
    assert '- "1": train/global_step' in synced.uploads["config.yaml"]
    assert "- \"2\": '*'\n              \"5\": 1" in synced.uploads["config.yaml"]
    assert synced.exit_code == 0


def test_wandb_starts_share_a_run(output):
    folders = sorted((output / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    assert len({folder.name.rsplit("-", 1)[1] for folder in folders}) == 1
    assert (output / "wandb/latest-run").resolve() == folders[-1].resolve()


def test_loss_plot_is_xml(output):
    root = xml.etree.ElementTree.parse(output / "training_loss.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    paths = root.findall("{http://www.w3.org/2000/svg}path")
    assert len(paths) == 2  # raw and smoothed; trainer_log.jsonl has no evaluation

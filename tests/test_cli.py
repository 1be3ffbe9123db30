"""The command line: quick to start, one JSON document when asked, and errors that say what would be right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_methods import catalogue, kubeflow
from kfp_methods.cli import main
from kfp_methods.cli.flags import parse
from kfp_methods.doctor import Finding, diagnose
from kfp_methods.errors import InputError
from tests.servers import free_port

NOOP = catalogue.load("noop")
HEAVY = {"torch", "mlflow", "kfp", "pandas", "numpy", "matplotlib", "sklearn"}
Call = Callable[..., tuple[int, str, str]]


def command(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`kfp-methods …` in a process of its own."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environ}
    full = [sys.executable, "-m", "kfp_methods.cli", *arguments]
    return subprocess.run(full, capture_output=True, text=True, cwd=folder, env=env, check=False)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """`kfp-methods …` in this process and an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kfp-methods", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "my numbers.csv").write_text("x\n1\n5\n")
    (folder / "inputs.yaml").write_text("steps: 1\nscale: 3\nseed: 9\nlabels: {a: b}\ndata_uri: my numbers.csv\n")
    return folder


@pytest.fixture(scope="module")
def succeeded(folder: Path) -> subprocess.CompletedProcess[str]:
    return command(folder, "run", "noop", "-f", "inputs.yaml", "--scale", "2", "--json", "--output", "runs")


@pytest.mark.parametrize(
    "arguments", [["list"], ["--help"], ["run", "--help"], ["run", "noop", "--help"], ["show", "noop"]]
)
def test_looking_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    probe = (
        "import sys; sys.argv = ['kfp-methods', *sys.argv[1:]]\n"
        "from kfp_methods.cli import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "print(code, sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True)
    print(f"{arguments}: {time.monotonic() - started:.2f} s")
    code, _, modules = done.stderr.partition(" ")
    assert code in ("0", "None")
    assert "noop" in done.stdout or arguments == ["--help"]
    assert not HEAVY & set(yaml.safe_load(modules))


def test_help_shows_each_flag_with_meaning_choices_and_default(call: Call) -> None:
    code, text, _ = call("run", "noop", "--help")
    assert code == 0
    words = " ".join(text.split())
    for kind in NOOP.inputs.kinds().values():
        assert f"--{kind.parameter_name.replace('_', '-')} " in words
        assert kind.description in words
    assert "--preset smoke|sample|gpu" in words
    assert "[default: the preset's]" in words
    assert "[default: the embedded sample]" in words


def test_help_lists_every_command_with_what_it_does(call: Call) -> None:
    from kfp_methods.cli import _COMMANDS, _SUMMARIES, cli

    code, text, _ = call("--help")
    assert code == 0
    assert set(_SUMMARIES) == set(_COMMANDS)
    for name in _COMMANDS:
        assert _SUMMARIES[name] in " ".join(text.split())
        assert cli.get_command(None, name) is not None  # type: ignore[arg-type]


def test_list_filters_and_speaks_json(call: Call) -> None:
    assert "noop" in call("list", "--tag", "testing")[1]
    assert json.loads(call("list", "--json", "--group", "no-such-group")[1]) == []
    [row] = json.loads(call("list", "--json", "--tag", "testing")[1])
    assert row == {
        "name": "noop",
        "group": "tabular",
        "title": "Nothing at all",
        "tags": ["testing"],
        "stability": "alpha",
    }


@pytest.mark.slow
def test_json_is_all_there_is_on_standard_output(succeeded: subprocess.CompletedProcess[str]) -> None:
    assert succeeded.returncode == 0, succeeded.stderr
    result = json.loads(succeeded.stdout, parse_constant=pytest.fail)
    assert result["method"] == "noop"
    assert (result["exit_code"], result["error"], result["data"]) == (0, "", "user")
    assert result["seconds"] > 0
    [claim] = result["claims"]
    assert {"id", "verdict", "value", "low", "high", "paper"} <= set(claim)
    assert set(result["outputs"]) == set(NOOP.outputs.kinds())
    assert all(Path(path).is_file() for path in result["outputs"].values())
    assert Path(result["outputs"]["report"]).suffix == ".html"
    assert Path(result["outputs"]["doubled"]).read_text() == "x\n2.0\n10.0\n"
    assert len(result["mlflow"]["run_id"]) == 32
    assert "noop: starting" in succeeded.stderr


@pytest.mark.slow
def test_flags_win_over_the_file(succeeded: subprocess.CompletedProcess[str]) -> None:
    result = json.loads(succeeded.stdout)
    assert result["metrics"]["total"] == 6.0 * 2
    assert result["claims"][0]["value"] == 6.0 * 2 + 9


@pytest.mark.slow
def test_a_run_for_people_ends_with_its_result(folder: Path, succeeded: subprocess.CompletedProcess[str]) -> None:
    done = command(folder, "run", "noop", "--preset", "smoke", "--output", "runs", "--verbose")
    assert done.returncode == 0, done.stderr
    for part in ("noop on embedded sample (preset smoke)", "total", "The sum is above zero", "inconclusive", "no paper",
                 "Report:", "report.html", "kfp-methods ui"):  # fmt: skip
        assert part in done.stdout
    assert "finished with status" in done.stderr
    assert "finished with status" not in done.stdout


@pytest.mark.slow
def test_the_ui_shows_the_runs(folder: Path, succeeded: subprocess.CompletedProcess[str]) -> None:
    port = free_port()
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    full = [sys.executable, "-m", "kfp_methods.cli", "ui", "--output", "runs", "--port", str(port)]
    log = (folder / "ui.log").open("w")
    process = subprocess.Popen(full, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        page = _wait_for(f"http://127.0.0.1:{port}/", process)
        assert "mlflow" in page.lower()
        api = (
            f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/get?run_id={json.loads(succeeded.stdout)['mlflow']['run_id']}"
        )
        with urllib.request.urlopen(api, timeout=30) as answer:
            assert json.load(answer)["run"]["info"]["status"] == "FINISHED"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
        log.close()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (our own server)
                return answer.read().decode()
        except OSError:
            time.sleep(0.3)
    raise AssertionError("the server did not answer")


def test_the_ui_needs_runs_to_show(call: Call) -> None:
    code, _, text = call("ui", "--output", "nothing")
    assert code == 2
    assert text == (
        "output=nothing: there are no runs in this folder. "
        "Run a method first, or give the folder that `kfp-methods run --output` had.\n"
    )


def test_the_ui_of_a_server_is_the_servers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    assert call("ui")[:2] == (0, "MLflow: https://mlflow.example (from MLFLOW_TRACKING_URI)\n")


BAD = [
    (["noop", "--steps", "0", "--seed", "x"], "steps=0: is too small. Give at least 1."),
    (["noop", "--weights", "1,two"], "weights.1=two: is not a number. Give a number."),
    (["noop", "--stpes", "3"], "--steps"),
    (["nop"], "method=nop: there is no such method. Did you mean noop?"),
    (["noop", "--runner", "cloud"], "'cloud' is not one of 'subprocess', 'docker'"),
    (["noop", "--replicates", "0"], "0 is not in the range 1<=x<=1000"),
    (["noop", "-f", "no-such-file.yaml"], "inputs_file=no-such-file.yaml: cannot be read"),
    (["noop", "--output", "/dev/null/runs"], "output=/dev/null/runs: cannot be made"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD)
def test_bad_input_exits_with_2_and_is_json_when_asked(call: Call, arguments: list[str], expected: str) -> None:
    code, out, err = call("run", *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    code, out, err = call("run", *arguments, "--json")
    assert code == 2
    result = json.loads(out)
    assert result["exit_code"] == 2
    assert expected in result["error"]
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_fault_of_the_method_is_json_too(folder: Path) -> None:
    done = command(folder, "run", "noop", "--mode", "crash", "--json", "--output", "runs")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["metrics"], result["claims"]) == (1, {}, [])
    assert "RuntimeError: asked to crash" in result["error"]
    assert "RuntimeError: asked to crash" in done.stderr


@pytest.mark.slow
def test_data_that_cannot_be_used_is_bad_input(folder: Path) -> None:
    (folder / "letters.csv").write_text("x\n1\na\n")
    done = command(folder, "run", "noop", "--data-uri", "letters.csv", "--json", "--output", "runs")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"].startswith("data_uri=")
    assert "Traceback" not in done.stderr


def test_a_fault_of_the_command_line_is_json_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(kubeflow, "single_pipeline", broken)
    code, out, err = call("run", "noop", "--json")
    assert code == 1
    assert "broken on purpose" in json.loads(out)["error"]
    assert "Traceback" in err


@pytest.mark.parametrize(
    "arguments", [["lst"], ["--no-such-flag"], ["show"], ["run", "noop", "--seed"], ["new", "x"], ["status"]]
)
def test_wrong_usage_exits_with_2(call: Call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert "Error: " in err


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ({"weights": "1,2.5"}, "weights", [1.0, 2.5]),
        ({"weights": "[1, 2.5]"}, "weights", [1.0, 2.5]),
        ({"weights": "3"}, "weights", [3.0]),
        ({"labels": '{"a": "b c"}'}, "labels", {"a": "b c"}),
        ({"labels": "a: b"}, "labels", {"a": "b"}),
        ({"scale": "1e-3"}, "scale", 0.001),
        ({"scale": "auto"}, "scale", "auto"),
        ({"require_tracking": "true"}, "require_tracking", True),
        ({"seed": "7"}, "seed", 7),
        ({"experiment": "[not a list]"}, "experiment", "[not a list]"),
    ],
)
def test_flags_become_the_contracts_types(flags: dict[str, str], name: str, value: object) -> None:
    found = getattr(parse(NOOP, flags, None), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: [", "just text", b"\xff\xfe", ""])
def test_a_file_of_inputs_that_cannot_be_read_is_explained(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match="Give a YAML file with one line") as caught:
        parse(NOOP, {}, path)
    assert caught.value.problems[0].field == "inputs_file"


def test_wrong_fields_of_a_file_and_of_flags_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_text("step: 1\npause: -1\n")
    with pytest.raises(InputError) as caught:
        parse(NOOP, {"mode": "divide"}, path)
    assert {problem.field for problem in caught.value.problems} == {"step", "pause", "mode"}


def test_check_reads_the_data_and_runs_nothing(call: Call, tmp_path: Path) -> None:
    assert call("check", "noop")[:2] == (0, "noop: the inputs are valid (embedded sample)\n")
    (tmp_path / "numbers.csv").write_text("x\n1\n")
    assert call("check", "noop", "--data-uri", "numbers.csv", "--mode", "crash")[1].endswith("(your data)\n")
    (tmp_path / "text.csv").write_text("x\nword\n")
    code, out, err = call("check", "noop", "--data-uri", "text.csv")
    assert (code, out) == (2, "")
    assert err.startswith("data_uri=text.csv: ")
    assert not list(tmp_path.glob("kfp-methods-runs"))


def test_compile_writes_the_pipeline(call: Call, tmp_path: Path) -> None:
    assert call("compile", "noop", "-o", "a.yaml") == (0, "a.yaml\n", "")
    assert call("compile", "noop", "--single")[1] == "noop.yaml\n"
    names = [
        next(yaml.safe_load_all(Path(name).read_text()))["pipelineInfo"]["name"] for name in ("a.yaml", "noop.yaml")
    ]
    assert names == ["noop-replicates", "noop"]


def test_compile_places_pods(call: Call) -> None:
    flags = [
        "--node-selector",
        "pool=gpu",
        "--toleration",
        "nvidia.com/gpu:NoSchedule",
        "--toleration",
        "t=v:NoExecute",
    ]
    assert call("compile", "noop", *flags, "--retries", "0", "--cache", "--image", "own:1")[0] == 0
    spec, platform = yaml.safe_load_all(Path("noop.yaml").read_text())
    executor = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-noop"]
    assert executor["nodeSelector"]["labels"] == {"pool": "gpu"}
    assert executor["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "t", "operator": "Equal", "value": "v", "effect": "NoExecute"},
    ]
    assert spec["deploymentSpec"]["executors"]["exec-noop"]["container"]["image"] == "own:1"
    assert "retryPolicy" not in Path("noop.yaml").read_text()
    assert "enableCache: true" in Path("noop.yaml").read_text()


def test_compile_all_writes_every_method(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("compile", "--all", "yaml")
    assert code == 0
    names = {entry.name for entry in catalogue.entries()}
    assert {path.stem for path in (tmp_path / "yaml").iterdir()} == names
    assert len(out.splitlines()) == len(names)


def test_compile_makes_kubernetes_resources(call: Call) -> None:
    assert call("compile", "noop", "--kubernetes-manifest", "--namespace", "team")[0] == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(Path("noop.yaml").read_text())]
    assert kinds == ["Pipeline", "PipelineVersion"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "give either a method's name or --all DIR"),
        (["noop", "--all", "x"], "give either a method's name or --all DIR"),
        (["nop"], "Did you mean noop?"),
        (["noop", "--node-selector", "gpu"], "node_selector=gpu: is not KEY=VALUE"),
        (["noop", "--toleration", "gpu"], "toleration=gpu: is not KEY[=VALUE]:EFFECT"),
        (["noop", "--toleration", "gpu:Sometimes"], "toleration=gpu:Sometimes"),
    ],
)
def test_compile_explains_what_it_cannot_do(call: Call, arguments: list[str], expected: str, tmp_path: Path) -> None:
    code, out, err = call("compile", *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert not list(tmp_path.glob("*.yaml"))


@pytest.fixture
def server() -> Iterator[str]:
    """Answers 200 to the health checks of MLflow and Kubeflow below /good, and 401 to the rest."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.path in ("/good/health", "/good/apis/v2beta1/healthz")
            self.send_response(200 if good else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test's output is the test's."""

    served = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()


def findings(**environ: str) -> dict[str, Finding]:
    return {finding.part: finding for finding in diagnose(environ)}


def test_doctor_reaches_the_servers_that_the_environment_names(server: str) -> None:
    good = findings(MLFLOW_TRACKING_URI=f"{server}/good", KFP_ENDPOINT=f"{server}/good/")
    assert [good[part].good for part in ("MLflow", "Kubeflow")] == [True, True]
    bad = findings(MLFLOW_TRACKING_URI=server, KFP_ENDPOINT=server)
    assert [bad[part].state for part in ("MLflow", "Kubeflow")] == ["HTTP 401", "HTTP 401"]
    away = f"http://127.0.0.1:{free_port()}"
    gone = findings(MLFLOW_TRACKING_URI=away, KFP_ENDPOINT="kubeflow.example")
    assert "not reachable" in gone["MLflow"].state
    assert gone["Kubeflow"].state == "not an http(s) URL"
    for finding in (*(bad[part] for part in ("MLflow", "Kubeflow")), gone["MLflow"], gone["Kubeflow"]):
        assert not finding.good
        assert finding.remedy


def test_doctor_says_what_to_do_about_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    found = findings()
    assert found["Python"].good
    for part in ("Packages", "GPU", "Docker", "Kubeflow", "kubectl"):
        assert not found[part].good
        assert found[part].remedy
    assert found["Packages"].state == "missing: torch"
    assert [part for part, finding in found.items() if finding.needed and not finding.good] == ["Packages"]
    assert found["MLflow"].good


@pytest.mark.parametrize(
    ("answer", "state", "good"),
    [("echo H200, 143771 MiB", "H200, 143771 MiB", True), ("exit 9", "driver fails", False)],
)
def test_doctor_asks_the_gpu_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: str, good: bool
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    gpu = findings()["GPU"]
    assert (gpu.state, gpu.good) == (state, good)


def test_doctor_fails_only_for_what_a_local_run_needs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = call("doctor")
    assert code == 0
    assert all(part in text for part in ("Python", "Packages", "GPU", "Docker", "MLflow", "Kubeflow", "kubectl"))
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "mlflow" else find(name, *rest))
    code, text, _ = call("doctor")
    assert code == 1
    assert "missing: mlflow" in text
    assert "pip install 'kfp-methods[kubeflow,tabular]'" in text


def test_replicates_whose_seeds_run_out_are_refused_before_anything_runs(cli: Callable[..., Any]) -> None:
    done = cli("run", "noop", "--replicates", "3", "--seed", str(2**31 - 2))
    assert done.returncode == 2
    assert "3 replicates would need seeds up to 2147483648" in done.stderr

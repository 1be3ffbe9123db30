"""The command line: quick to start, one JSON document when asked, and errors that say what would be right."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
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

from kfp_methods import catalogue, kubeflow, local
from kfp_methods.cli import outputs, summary
from kfp_methods.cli.flags import option, parse
from kfp_methods.doctor import Finding, diagnose
from kfp_methods.errors import InputError
from kfp_methods.local import LocalRun
from tests.servers import free_port

NOOP = catalogue.load("noop")
HEAVY = {"torch", "mlflow", "kfp", "pandas", "numpy", "matplotlib", "sklearn"}
Call = Callable[..., tuple[int, str, str]]


def command(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`kfp-methods …` in a process of its own."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environ}
    full = [sys.executable, "-m", "kfp_methods.cli", *arguments]
    return subprocess.run(full, capture_output=True, text=True, errors="replace", cwd=folder, env=env, check=False)


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
    assert "Commas between the entries, as in --weights " in words
    order = [text.index(title) for title in ("--data-uri", "--mode", "--preset", "--experiment", "--file", "--help")]
    assert order == sorted(order), "the method's own flags come first, those of the command last"
    assert "[default: the embedded sample]" in words


def test_help_says_of_several_files_what_happens_without_any() -> None:
    kind = NOOP.inputs.kinds()["data"]
    assert "[default: the embedded sample]" in str(option(kind, files=1).help)
    assert "[default: none; without any file the embedded sample is used]" in str(option(kind, files=2).help)


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
    listed = json.loads(call("list", "--json", "--tag", "testing")[1])
    assert (listed["exit_code"], listed["error"], listed["problems"]) == (0, "", [])
    [row] = listed["methods"]
    assert row.pop("summary")
    assert row == {
        "method": "noop",
        "group": "tabular",
        "title": "Nothing at all",
        "tags": ["testing"],
        "stability": "alpha",
    }


@pytest.mark.parametrize(("flag", "known"), [("--group", "tabular"), ("--tag", "testing")])
def test_list_names_the_groups_and_tags_that_there_are(call: Call, flag: str, known: str) -> None:
    code, out, err = call("list", flag, "nope")
    assert (code, out) == (2, "")
    assert err.startswith(f"{flag[2:]}=nope: no method has it. Give one of ")
    assert known in err


def test_show_speaks_json(call: Call) -> None:
    shown = json.loads(call("show", "noop", "--json")[1])
    assert (shown["method"], shown["exit_code"], shown["problems"]) == ("noop", 0, [])
    assert [entry["name"] for entry in shown["inputs"]] == [k.parameter_name for k in NOOP.inputs.kinds().values()]
    assert {entry["name"] for entry in shown["outputs"]} == set(NOOP.outputs.kinds())
    assert "total" in [entry["name"] for entry in shown["metrics"]]
    assert [claim["id"] for claim in shown["claims"]] == ["sum-positive"]


@pytest.mark.parametrize("arguments", [["run", "noop"], ["check", "noop"], ["show"], ["list"]])
def test_every_json_document_is_described_where_it_is_asked_for(call: Call, arguments: list[str]) -> None:
    words = " ".join(call(*arguments, "--help")[1].split())
    assert "exit_code, error (a text), problems ([{field, value, problem, remedy}])" in words


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_cannot_show_a_character_is_no_error(tmp_path: Path, encoding: str) -> None:
    for arguments in (["list"], ["show", "noop"], ["run", "--help"], ["run", "noop", "--seed", "größe ≥ 1"]):
        done = command(tmp_path, *arguments, PYTHONIOENCODING=encoding)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if "--seed" in arguments else 0)


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["show", "noop"]])
def test_a_reader_that_has_gone_and_a_full_disk_are_no_faults(tmp_path: Path, arguments: list[str]) -> None:
    full = [sys.executable, "-m", "kfp_methods.cli", *arguments]
    reading, writing = os.pipe()
    os.close(reading)
    for target, code in ((writing, 128 + signal.SIGPIPE), (os.open("/dev/full", os.O_WRONLY), 2)):
        done = subprocess.run(full, stdout=target, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
        os.close(target)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
    assert done.stderr == (
        "standard output: cannot be written to: No space left on device. Make room there, or choose another place.\n"
    )


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
    assert done.stdout.splitlines()[1] == "The sum is 6."
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
        assert "/#/experiments?workflowType=machine_learning " in (folder / "ui.log").read_text()
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


def test_the_ui_says_when_its_port_is_taken(call: Call, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = call("ui", "--output", "runs", "--port", port)
    assert (code, out) == (2, "")
    assert err == (
        f"port={port}: cannot be listened on (Address already in use). "
        "Give another with --port, or stop what listens there.\n"
    )
    assert call("ui", "--output", "runs", "--host", "no-such-host.invalid")[2].startswith("host=no-such-host.invalid: ")


def test_the_ui_of_a_server_is_the_servers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    view = "https://mlflow.example/#/experiments?workflowType=machine_learning"
    assert call("ui")[:2] == (0, f"MLflow: {view} (from MLFLOW_TRACKING_URI)\n")


BAD = [
    (["noop", "--steps", "0", "--seed", "x"], "steps=0: is too small. Give at least 1 and at most 100000."),
    (["noop", "--weights", "1,two"], "weights=two: entry 2 is not a number. Give a number."),
    (["noop", "--stpes", "3"], "--steps"),
    (["nop"], "method=nop: there is no such method. Did you mean noop?"),
    (["noop", "--runner", "cloud"], "'cloud' is not one of 'subprocess', 'docker'"),
    (["noop", "--replicates", "0"], "0 is not in the range 1<=x<=1000"),
    (["noop", "-f", "no-such-file.yaml"], "inputs_file=no-such-file.yaml: cannot be read"),
    (["noop", "--output", "/dev/null/runs"], "output=/dev/null/runs: cannot be written to: Not a directory"),
    (["noop", "--output", "/sys/runs"], "output=/sys/runs: cannot be written to: "),
    (["noop", "--output", "what?"], "output=what?: has a ? in it"),
    (["noop", "--output", "a%20b"], "output=a%20b: has a % in it"),
    (["noop", "--seed", "1", "--seed", "2"], "seed=1, 2: is given 2 times. Give it once"),
    (["noop", "--image", "own:1"], "image=own:1: has no effect without --runner docker"),
    (["noop", "--docker-network", "host"], "docker_network=host: has no effect without --runner docker"),
    (["noop", "--data-uri", "runs:/abc/x.csv"], "data_uri=runs:/abc/x.csv: there is no MLflow to read it from"),
    (["noop", "--data-uri", "~no-such-user/x"], "data_uri=~no-such-user/x: names a home folder that does not exist"),
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
    for problem in result["problems"]:
        assert set(problem) == {"field", "value", "problem", "remedy"}
    assert result["problems"]
    assert result.get("method") in (None, arguments[0])


@pytest.mark.parametrize("what", ["run", "check"])
@pytest.mark.parametrize("uri", ["foo:bar", "htp://u:hunter2@h", "localhost:5000", "mlruns", "sqlite://x", "http://"])
def test_a_tracking_uri_that_is_none_is_refused_before_any_work(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    code, out, err = call(what, "noop")
    assert (code, out) == (2, "")
    assert err.startswith("MLFLOW_TRACKING_URI=")
    assert "hunter2" not in err
    assert not list(tmp_path.iterdir())


def test_one_replicate_is_said_to_pool_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "run_pipeline", lambda *_, **__: pytest.exit("not reached"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "foo:bar")
    assert "replicates=1: this is one plain run" in call("run", "noop", "--replicates", "1")[2]
    assert "replicates" not in call("run", "noop")[2]


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")]
)
def test_a_folder_that_fills_up_while_a_run_writes_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def full(*_: object, root: Path, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(root / "deep"))

    monkeypatch.setattr(local, "run_pipeline", full)
    code, out, err = call("run", "noop", "--output", "runs")
    assert (code, out) == (2, "")
    assert err.startswith(f"output=runs: cannot be written to: {said} (runs/deep). ")


def test_another_error_of_the_system_is_still_a_fault(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EBADF, "broken on purpose")

    monkeypatch.setattr(local, "run_pipeline", broken)
    code, _, err = call("run", "noop", "--output", "runs")
    assert code == 1
    assert "Traceback" in err


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
    result = json.loads(done.stdout)
    assert result["error"].startswith("data_uri=")
    [problem] = result["problems"]
    assert problem["field"] == "data_uri"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_the_tasks_log_has_said_is_not_said_again(folder: Path) -> None:
    (folder / "letters.csv").write_text("x\n1\na\n")
    refused = command(folder, "run", "noop", "--data-uri", "letters.csv", "--output", "runs")
    assert refused.stderr.count("data_uri=") == 1
    assert refused.stdout == "noop ended with exit code 2; the log above says why\n"
    crashed = command(folder, "run", "noop", "--mode", "crash", "--output", "runs")
    assert crashed.stderr.count("asked to crash\n") == 1
    assert "Traceback" not in crashed.stdout


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


@pytest.mark.parametrize(
    "content",
    ["- a\n- b\n", "a: [", "just text", b"\xff\xfe", "", "seed: 1\nseed: 2\n", "[" * 9999, "seed: " + "9" * 5000],
)
def test_a_file_of_inputs_that_cannot_be_read_is_explained(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match="Give a YAML file with one line") as caught:
        parse(NOOP, {}, path)
    assert caught.value.problems[0].field == "inputs_file"


def test_a_file_of_inputs_says_where_it_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_text("seed: 1\nsteps: 2\nseed: 3\n")
    with pytest.raises(InputError, match="line 3: seed is given twice"):
        parse(NOOP, {}, path)
    path.write_text("seed:\nsteps: null\nscale: 2\n")
    with pytest.raises(InputError) as caught:
        parse(NOOP, {}, path)
    assert {problem.field for problem in caught.value.problems} == {"seed", "steps"}
    assert "leave the line out" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("experiment: no", "experiment", "no"),
        ("experiment: 1:30", "experiment", "1:30"),
        ("experiment: 2024-01-01", "experiment", "2024-01-01"),
        ("seed: 010", "seed", 10),
        ("scale: 1e-3", "scale", 0.001),
        ("require_tracking: true", "require_tracking", True),
        ("weights: 1, 2.5", "weights", [1.0, 2.5]),
        ("labels: {a: on}", "labels", {"a": "on"}),
        ('labels: \'{"a": "b"}\'', "labels", {"a": "b"}),
    ],
)
def test_a_file_of_inputs_means_what_it_looks_like(tmp_path: Path, line: str, name: str, value: object) -> None:
    path = tmp_path / "inputs.yaml"
    path.write_text(line)
    found = getattr(parse(NOOP, {}, path), name)
    assert found == value
    assert type(found) is type(value)


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


def test_check_speaks_json(call: Call) -> None:
    assert "--output: not used" in call("check", "noop", "--output", "elsewhere")[2]
    checked = json.loads(call("check", "noop", "--seed", "3", "--json")[1])
    assert (checked["method"], checked["exit_code"], checked["error"], checked["problems"]) == ("noop", 0, "", [])
    assert (checked["data"], checked["inputs"]["seed"], checked["warnings"]) == ("sample", 3, [])


def test_check_finds_a_device_that_is_not_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = call("check", "noop", "--device", "cuda")
    assert code == 2
    assert err.startswith("device=cuda: ")


def test_check_looks_into_mlflow_without_making_one(call: Call, tmp_path: Path) -> None:
    code, out, err = call("check", "noop", "--data-uri", "runs:/abc/x.csv")
    assert (code, out) == (2, "")
    assert err == (
        "data_uri=runs:/abc/x.csv: there is no MLflow to read it from: no runs in kfp-methods-runs, and "
        "MLFLOW_TRACKING_URI is not set. Set MLFLOW_TRACKING_URI, or give --output the folder that the run had.\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_check_reads_from_the_runs_database_and_changes_nothing(
    folder: Path, succeeded: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    run_id = json.loads(succeeded.stdout)["mlflow"]["run_id"]
    database = folder / "runs" / "mlflow.db"
    before = database.read_bytes()
    uri = f"runs:/{run_id}/tables/doubled.csv"
    done = command(tmp_path, "check", "noop", "--data-uri", uri, "--output", str(folder / "runs"))
    assert (done.returncode, done.stdout) == (0, "noop: the inputs are valid (your data)\n"), done.stderr
    assert "INFO" not in done.stderr
    assert not list(tmp_path.iterdir())
    assert database.read_bytes() == before


def test_compile_writes_the_pipeline(call: Call, tmp_path: Path) -> None:
    code, out, err = call("compile", "noop", "-o", "a.yaml")
    assert (code, out) == (0, "a.yaml\n")
    assert err.startswith("warning: the image kfp-methods/tabular:")
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


def test_a_place_that_takes_no_folder_is_the_user_s_to_mend(cli: Callable[..., Any]) -> None:
    done = cli("run", "noop", "--output", "/proc/none/runs")
    assert done.returncode == 2
    assert "output=/proc/none" in done.stderr
    assert "Traceback" not in done.stderr


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
    code, text, _ = call("doctor", "--json")
    found = json.loads(text)
    assert (code, found["exit_code"], found["error"]) == (1, 1, "a local run needs more: Packages")
    assert found["parts"][1]["state"] == "missing: mlflow"


def test_replicates_whose_seeds_run_out_are_refused_before_anything_runs(cli: Callable[..., Any]) -> None:
    done = cli("run", "noop", "--replicates", "3", "--seed", str(2**31 - 2))
    assert done.returncode == 2
    assert "3 replicates would need seeds up to 2147483648" in done.stderr


RESULT: dict[str, Any] = {
    "method": "noop", "exit_code": 0, "error": "", "problems": [], "seconds": 1.0, "data": "user", "preset": "smoke",
    "headline": "It is [bold]large[/]\x1b[31m.",
    "tables": [{"title": "Records", "columns": ["record", "flagged", "score"], "rows": [["a", 3.0, 0.25]]}],
    "metrics": {"count": 12.0, "rate": 0.123456},
    "claims": [{"statement": "It holds", "verdict": "supported", "value": 1.0, "low": None, "high": None, "n": 1,
                "paper": "0.9"}],
    "outputs": {"report": "/r/report.html"}, "replicates": [], "folder": "/r", "mlflow": None, "warnings": [],
}  # fmt: skip
DONE = LocalRun(Path("/r"), 0, Path("/r/log"))


def shown(capsys: pytest.CaptureFixture[str], result: dict[str, Any], ended: LocalRun = DONE) -> str:
    summary.show(result, ended, logged=True)
    return capsys.readouterr().out


def test_the_answer_comes_first_and_on_the_users_data_results_before_claims(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    order = ("It is [bold]large", "your own data", "Records", "Metrics", "Claims of the paper", "Report:")
    text = shown(capsys, RESULT)
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "\x1b" not in text, "data does not speak to the terminal"
    on_sample = shown(capsys, {**RESULT, "data": "sample"})
    assert on_sample.index("Claims of the paper") < on_sample.index("Metrics")


def test_whole_numbers_are_printed_as_such(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(capsys, RESULT).splitlines()
    assert "flagged: 3" in lines
    assert "score: 0.25" in lines
    assert "count: 12" in lines
    assert "rate: 0.1235" in lines


@pytest.mark.parametrize("columns", ["20", "40", "59", "60", "80"])
def test_a_result_is_readable_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, RESULT)
    assert ("┃" in text) == (int(columns) >= 60)
    for word in ("record", "flagged", "score", "supported", "0.1235"):
        assert word in text


def test_replicates_that_were_not_pooled_have_outputs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "deep" / "report"
    report.parent.mkdir()
    report.write_text("page")
    base = {"method": "noop", "warnings": [], "metrics": {"total": 1}, "mlflow": None}
    done = {**base, "seed": 5, "exit_code": 0, "error": "", "outputs": {"report": str(report)}}
    failed = {**base, "seed": None, "exit_code": 2, "error": "seed=-1: is too small.", "outputs": {}}
    ended = LocalRun(tmp_path, 2, tmp_path / "log", [failed, done], "failed")
    linked = outputs.linked(NOOP, ended, replicated=True)
    result = summary.of(NOOP, NOOP.inputs.parse({}), ended, 1.0, linked)
    assert (result["outputs"], result["metrics"], result["error"]) == ({}, {}, "seed=-1: is too small.")
    named = tmp_path / "seed-5" / "report.html"
    assert result["replicates"] == [
        {"seed": 5, "exit_code": 0, "outputs": {"report": str(named)}},
        {"seed": None, "exit_code": 2, "outputs": {}},
    ]
    assert named.read_text() == "page"
    text = " ".join(shown(capsys, result, ended).split())
    assert f"Seed 5, done: {named.parent}" in text
    assert "A replicate, exit code 2" in text


NAMES = [
    "true",
    "yes",
    "null",
    "on",
    "import",
    "match",
    "list",
    "os",
    "torch",
    "noop",
    "collect",
    "A",
    "a-b",
    "_x",
    "1a",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_new_method_has_a_name_that_means_nothing_else(call: Call, tmp_path: Path, name: str) -> None:
    code, out, err = call("new", name, "--group", "tabular", "--into", str(tmp_path / "own"))
    assert (code, out) == (2, "")
    assert err.startswith(f"NAME={name}: ")
    assert not list(tmp_path.iterdir())


def test_a_new_method_goes_into_a_group_that_is_known_or_asked_for(call: Call, tmp_path: Path) -> None:
    into = ["--into", str(tmp_path / "my methods")]
    code, _, err = call("new", "mine", "--group", "tabluar", *into)
    assert code == 2
    assert err.startswith("group=tabluar: there is no such group. Give one of ")
    assert call("new", "mine", "--group", "true", "--new-group", *into)[0] == 2
    assert call("new", "mine", "--group", "other", "--new-group", *into)[0] == 0
    assert call("new", "second", "--group", "other", *into)[0] == 0, "the group is there now"


def test_the_advice_for_a_new_method_can_be_followed(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("new", "mine", "--group", "tabular", "--into", str(tmp_path / "my methods"))
    assert code == 0
    grep, run = re.findall(r"`([^`]*)`", out)
    typed = {"shell": True, "capture_output": True, "text": True}
    assert "WRITE" in subprocess.run(grep, check=True, **typed).stdout
    check = run.replace("kfp-methods run", f"{sys.executable} -m kfp_methods.cli check")
    done = subprocess.run(check, check=False, **typed)
    assert (done.returncode, done.stdout) == (0, "mine: the inputs are valid (embedded sample)\n"), done.stderr


def test_a_new_method_in_a_folder_that_cannot_be_written_to(call: Call) -> None:
    code, _, err = call("new", "mine", "--group", "tabular", "--into", "/sys/methods")
    assert code == 2
    assert err.startswith("into=/sys/methods: cannot be written to: ")

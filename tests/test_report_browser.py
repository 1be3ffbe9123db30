"""The report in a real browser: fits a phone, asks nothing of the network, sorts, prints, has a dark mode."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import websocket
from PIL import Image

from kfp_methods.claims import Claim, judge, not_measured
from kfp_methods.page import render
from kfp_methods.report import Figure, Report, Table, Text, new_figure

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-port=0"
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]


class Page:
    """One browser tab, driven over the DevTools protocol."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, suppress_origin=True, timeout=60)
        self._ids = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.send("Page.enable")
        self.send("Network.enable")
        self.send("Log.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(json.loads(self._socket.recv()))

    def evaluate(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self) -> Image.Image:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a headless Chromium."""
    profile = tmp_path_factory.mktemp("profile")
    process = subprocess.Popen(
        [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        announced = profile / "DevToolsActivePort"
        deadline = time.monotonic() + 60
        while not (announced.exists() and announced.read_text().count("\n")):
            assert process.poll() is None, "Chromium ended"
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.1)
        yield int(announced.read_text().splitlines()[0])
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def page(browser: int) -> Page:
    new = urllib.request.Request(f"http://127.0.0.1:{browser}/json/new?about:blank", method="PUT")
    with urllib.request.urlopen(new) as response:  # noqa: S310
        return Page(json.load(response)["webSocketDebuggerUrl"])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report as an audit would write it: every verdict, a wide and a long table, two figures."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(audit_report(), encoding="utf-8")
    return path


def audit_report() -> str:
    rng = np.random.default_rng(0)
    gain = Claim(
        id="auc-gain",
        statement="With one reference model, the Bayesian attack tells members apart better than LiRA.",
        paper="35.75 against 23.20 TPR at 1% FPR on CIFAR-100, LiRA with eight reference models",
        measure="Difference of AUC, paired over target models trained with consecutive seeds",
        direction="greater",
        threshold=0.0,
    )
    close = Claim(
        id="diag-close",
        statement="A diagonal posterior is as good as a Kronecker-factored one.",
        paper="Table 6: the difference is below 0.5 points",
        measure="Difference of TPR at 1% FPR, paired over seeds",
        direction="within",
        threshold=0.02,
    )
    cost = Claim("cost", "One reference costs less than eight.", "about 1/8", "Seconds", "less", 0.5, "×")
    rival = Claim("rmia", "The attack beats RMIA.", "35.75 against 10.08", "TPR difference", "greater", 0.0)
    large = Claim("imagenet", "The order holds on ImageNet.", "13.59 against 11.90", "TPR", "greater", 0.0)
    single = judge(Claim("one", "A single seed settles nothing.", "—", "AUC", "greater", 0.5), [0.61])
    seeds = range(5)
    results = [
        judge(gain, [0.0081, 0.0122, 0.0064, 0.0098, 0.0113], seeds=seeds),
        judge(close, [0.013, -0.021, 0.034, 0.002, 0.025], seeds=seeds),
        judge(cost, [0.131, 0.127, 0.140, 0.125, 0.129], seeds=seeds),
        judge(rival, [-0.031, -0.022, -0.027, -0.035, -0.024], "The paper's order is reversed here.", seeds),
        not_measured(large, "Needs ImageNet and a GPU: run with preset=gpu on your own copy."),
        single,
    ]
    fpr = np.logspace(-3, 0, 60)
    fig = new_figure()
    (axes,) = fig.axes
    for name, power in (("BMIA", 0.5), ("LiRA", 0.6), ("RMIA", 0.45), ("global", 0.8), ("chance", 1.0)):
        axes.plot(fpr, fpr**power, label=name)
    axes.set(xscale="log", yscale="log", xlabel="false-positive rate", ylabel="true-positive rate")
    axes.set_title("Every attack on the same target")
    axes.legend()
    roc = Figure.from_matplotlib(
        fig,
        name="roc",
        title="ROC of all attacks",
        alt="RMIA is highest, then BMIA, LiRA and the global threshold; all lie above chance.",
        caption="Both axes are logarithmic: what matters to an auditor is the left end.",
    )
    fig = new_figure(9, 3.2, columns=2)
    left, right = fig.axes
    left.hist(rng.normal(0, 1, 500), bins=30)
    left.set(title="Non-members", xlabel="t", ylabel="records")
    right.bar(["BMIA", "LiRA", "RMIA"], [0.053, 0.034, 0.078], yerr=[0.01, 0.012, 0.011], capsize=3)
    right.set(title="TPR at 1% FPR", ylabel="share")
    hist = Figure.from_matplotlib(fig, name="scores", title="Scores", alt="A bell curve; three bars.")
    attacks = pd.DataFrame(
        {
            "attack": ["BMIA", "LiRA (1)", "RMIA", "Attack-R", "global threshold"],
            "auc": [0.6474, 0.6361, 0.6812, 0.6011, 0.58],
            "tpr_at_1pct": [0.0533, 0.0342, 0.0784, 0.0, 0.0123],
            "tpr_at_0.1pct": [0.0083, 0.0025, 0.0117, None, 0.0017],
            "interval_low": [0.0413, 0.0246, 0.0638, 0.0, 0.0068],
            "interval_high": [0.0675, 0.0461, 0.0951, 0.0031, 0.0205],
            "train_seconds": [1.31, 1.31, 1.33, 5.24, 0.0],
            "references": [1, 1, 1, 4, 0],
            "parameters": [269_322, 269_322, 269_322, 1_077_288, 0],
        }
    )
    exposed = pd.DataFrame(
        {
            "row_id": rng.permutation(12_000)[:400],
            "t": np.sort(rng.standard_t(5, 400))[::-1],
            "p_value": np.sort(rng.random(400) ** 4),
            "decision": rng.random(400) < 0.1,
        }
    )
    return render(
        Report(
            summary="At a 1% false-positive rate the attack finds 5.3% of the training records: the model "
            "leaks, mildly.\n\nMost exposed are records the model classifies wrongly:\n\n- shirts (class 6)\n"
            "- coats (class 4)",
            parts=(
                roc,
                hist,
                Table("attacks", "All attacks", attacks, "TPR with its 95% Clopper–Pearson interval."),
                Table("exposed", "Most exposed records", exposed, "Sorted by t."),
                Text("How to read this", "A record's t is large when the target knows it too well."),
            ),
        ),
        method="bmia",
        title="Bayesian membership inference attack",
        paper={
            "title": "How Does Bayesian Sampling Help Membership Inference Attacks?",
            "authors": "Liu, Jiang, Zhou, Wei (ICML 2026)",
            "url": "https://arxiv.org/abs/2503.07482",
        },
        data="sample",
        data_note="6,000 Fashion-MNIST images (MIT licence). Give audit_uri to use your own.",
        claims=results,
        metrics={
            "tpr_at_1pct_bmia": 0.0533,
            "auc_bmia": 0.6474,
            "prior_precision": 12345.678,
            "tpr_at_0_1": None,
        },
        metric_help={
            "tpr_at_1pct_bmia": "Share of members found when 1% of non-members are accused",
            "auc_bmia": "Chance that a member scores above a non-member",
            "prior_precision": "Precision of the weights' prior, chosen by the Laplace evidence",
            "tpr_at_0_1": "Unresolvable here: fewer than 1,000 non-members",
        },
        inputs={
            "n_samples": 50,
            "fprs": [0.001, 0.01, 0.1],
            "audit_uri": "s3://a-bucket/" + "a-long-folder-name/" * 12 + "audit.parquet",
            "arch": "mlp",
        },
        versions={"kfp-methods": "0.1.0", "torch": "2.13.0", "commit": "0123456789abcdef" * 2},
        warnings=["One reference only: the nominal level is not the real one; decisions are calibrated."],
    )


@pytest.mark.parametrize("width", [360, 390, 768, 1200])
def test_page_never_scrolls_sideways(page: Page, report: Path, width: int) -> None:
    page.open(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    boxes = page.evaluate("[...document.querySelectorAll('.box')].map(b => [b.scrollWidth, b.clientWidth])")
    if width in (360, 1200):
        assert any(inner > outer for inner, outer in boxes) == (width == 360), "wide tables scroll in a box"


@pytest.mark.parametrize("width", [390, 1200])
def test_a_rows_name_stays_in_sight_while_its_numbers_scroll(page: Page, report: Path, width: int) -> None:
    page.open(report, width=width)
    place = (
        "(() => {{ const box = document.querySelector('.box.tall'); box.scrollLeft = {scroll}; "
        "const cell = box.querySelector('tbody').rows[1].cells[{column}].getBoundingClientRect(); "
        "return [cell.left - box.getBoundingClientRect().left, cell.width, box.clientWidth, box.scrollLeft]; }})()"
    )
    left, name_width, box_width, _ = page.evaluate(place.format(scroll=10_000, column=0))
    assert 0 <= left <= 2
    assert name_width < box_width / 2, "the numbers have most of the room"
    last, last_width, _, scrolled = page.evaluate(place.format(scroll=10_000, column=8))
    assert last + last_width <= box_width + 2
    assert (scrolled > 0) == (width == 390)


def test_a_long_unbroken_name_leaves_room_for_the_numbers(page: Page, tmp_path: Path) -> None:
    frame = pd.DataFrame({"file": ["é" * 250, "short"], "x": [0.5, 12_345.0], "y": [1, 2]})
    table = Table("t", "Files " + "W" * 300, frame)
    html = render(
        Report("Ω" * 500, (table,)),
        method="noop",
        title="m" * 200,
        paper={},
        data="user",
        data_note="/data/" + "a" * 400,
        claims=[],
        metrics={"a_very_long_metric_name_of_a_method_that_measures_much": 1.0},
        metric_help={},
        inputs={},
        versions={},
    )
    path = tmp_path / "long.html"
    path.write_text(html, encoding="utf-8")
    page.open(path, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert (
        page.evaluate(
            "(() => { const b = document.querySelector('.box.tall'); return b.scrollWidth - b.clientWidth })()"
        )
        == 0
    )


def test_page_asks_nothing_of_the_network_and_breaks_no_policy(page: Page, report: Path) -> None:
    page.open(report, width=1200)
    sent = [event for event in page.events if event["method"] == "Network.requestWillBeSent"]
    requests = [event["params"]["request"]["url"] for event in sent]
    assert requests[0] == report.as_uri()
    assert all(url.startswith("data:image/") for url in requests[1:]), requests
    assert len(requests) == 3
    assert [e for e in page.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
    assert broken == 0


def test_click_sorts_by_exact_value_and_keeps_missing_last(page: Page, report: Path) -> None:
    page.open(report, width=1200)
    column = "[...document.querySelector('table.sortable').tBodies[0].rows].map(r => r.cells[{}].textContent)"
    click = "document.querySelector('table.sortable').tHead.rows[0].cells[{}].querySelector('button').click()"
    page.evaluate(click.format(3))
    assert page.evaluate(column.format(3)) == ["0.0017", "0.0025", "0.0083", "0.0117", "—"]
    page.evaluate(click.format(3))
    assert page.evaluate(column.format(3)) == ["0.0117", "0.0083", "0.0025", "0.0017", "—"]
    page.evaluate(click.format(8))
    assert page.evaluate(column.format(8)) == ["0", "269,322", "269,322", "269,322", "1,077,288"]
    page.evaluate(click.format(0))
    assert page.evaluate(column.format(0)) == ["Attack-R", "BMIA", "global threshold", "LiRA (1)", "RMIA"]
    sorted_heads = page.evaluate("[...document.querySelectorAll('th[aria-sort]')].map(h => h.textContent)")
    assert sorted_heads == ["attack"]


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1200, False), (1200, True)])
def test_page_is_drawn_in_the_readers_colours(page: Page, report: Path, width: int, dark: bool) -> None:
    page.open(report, width=width, dark=dark)
    shot = page.screenshot()
    keep(shot, f"report-{width}-{'dark' if dark else 'light'}.png")
    assert shot.width == width
    assert shot.height > 1500
    grey = np.asarray(shot.convert("L"))
    assert (grey[:, 1].mean() < 60) == dark, "the margin has the page's colour"
    assert len(np.unique(grey)) > 50, "the page is not blank"


def test_print_shows_folded_inputs_and_whole_tables(page: Page, report: Path) -> None:
    page.open(report, width=1200, dark=True)
    page.send("Emulation.setEmulatedMedia", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = "[...document.querySelectorAll('.box')].filter(box => box.scrollHeight > box.clientHeight).length"
    assert page.evaluate(cut) == 0
    keep(page.screenshot(), "report-print.png")
    document = page.pdf()
    assert document.startswith(b"%PDF")
    assert document.count(b"/Type /Page\n") > 2


def keep(shot: Image.Image, name: str) -> None:
    """Where KFP_METHODS_SHOTS names a folder, leave the pictures there for a person to look at."""
    if folder := os.environ.get("KFP_METHODS_SHOTS"):
        shot.save(Path(folder) / name)

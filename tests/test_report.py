"""The report is one valid page on its own: what matters first, all escaped, always the same bytes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kfp_methods.page as page_module
from kfp_methods.claims import Claim, ClaimResult, Verdict, judge, not_measured
from kfp_methods.page import render
from kfp_methods.report import (
    MAX_SVG_BYTES,
    MAX_TABLE_COLUMNS,
    Figure,
    Report,
    Table,
    Text,
    format_interval,
    format_number,
    literal,
    new_figure,
)

GAIN = Claim("gain", "A beats B.", "35.75 against 23.20", "Difference of AUC over seeds", "greater", 0.0)
SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10'><rect width='9' height='9'/></svg>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ATTACK = "</td></script><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x&amp;{{7*7}}"


def page(report: Report | None = None, **changes: Any) -> str:
    arguments: dict[str, Any] = {
        "method": "bmia",
        "title": "Bayesian membership inference attack",
        "paper": {
            "title": "How Does It Help?",
            "authors": "Liu et al.",
            "url": "https://arxiv.org/abs/2503.07482",
        },
        "data": "sample",
        "data_note": "6,000 images.",
        "claims": [judge(GAIN, [0.9, 1.0, 1.1], seeds=range(3))],
        "metrics": {"auc": 0.6474, "tpr": None},
        "metric_help": {"auc": "Area under the ROC curve"},
        "inputs": {"seed": 0},
        "versions": {"torch": "2.13.0"},
    }
    return render(report or Report("It leaks."), **arguments | changes)


def parse(html: str) -> ElementTree.Element:
    """The document's tree; any parse error, however small, fails the test."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    return parser.parse(html)


def words(element: ElementTree.Element) -> str:
    """The text as a reader hears it: one space between elements, none before a comma."""
    return re.sub(r" ([,.])", r"\1", " ".join(" ".join(element.itertext()).split()))


def full() -> Report:
    frame = pd.DataFrame({"attack": ["BMIA", "LiRA"], "auc": [0.64741, 0.6], "n": [1, 20_000]})
    return Report(
        "It leaks.\n\nWhy:\n\n- one\n- two",
        (
            Figure("roc", "ROC", "Two curves.", SVG, "Log axes."),
            Figure("map", "Map", "A dot.", PNG),
            Table("attacks", "Attacks", frame, "All of them."),
            Text("Reading", "Plain words."),
        ),
    )


def test_page_is_valid_html_in_the_promised_order() -> None:
    tree = parse(page(full(), warnings=["Few seeds."]))
    body = words(tree.find("body"))  # type: ignore[arg-type]
    assert body.startswith("Embedded sample data. 6,000 images. Bayesian membership inference attack bmia from the")
    order = [
        "Few seeds.",
        "It leaks.",
        "supported",
        "A beats B.",
        "Key metrics",
        "ROC",
        "Attacks",
        "Inputs",
        "Versions",
    ]
    places = [body.index(text) for text in order]
    assert places == sorted(places)
    levels = [int(element.tag[1]) for element in tree.iter() if re.fullmatch(r"h\d", str(element.tag))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def headings(html: str) -> list[str]:
    return [words(element) for element in parse(html).iter("h2")]


def test_on_the_users_data_their_results_come_before_the_papers_claims() -> None:
    parts = full().parts
    answer = Table("answer", "Answer", pd.DataFrame({"a": [1]}), highlight=True)
    report = Report("It leaks.", (*parts, answer))
    own = headings(page(report, data="user"))
    rest = [part.title for part in parts]
    assert own == ["Result", "Answer", "Key metrics", *rest, "Claims of the paper", "How it was run"]
    sample = headings(page(report, data="sample"))
    assert sample == ["Result", "Claims of the paper", "Answer", "Key metrics", *rest, "How it was run"]


def test_on_the_users_data_the_claims_below_are_pointed_to() -> None:
    tree = parse(page(data="user"))
    (link,) = (element for element in tree.iter("a") if not element.get("href", "").startswith("http"))
    assert link.get("href") == "#verdicts"
    assert any(element.get("id") == "verdicts" for element in tree.iter("h2"))
    assert "#verdicts" not in page(data="user", claims=[])
    assert "#verdicts" not in page(data="sample")


def test_highlighted_tables_are_plain_json() -> None:
    frame = pd.DataFrame(
        {
            "text": pd.Series(["é", "caf\udce9"], ["r", "s"], dtype=object),
            "n": [1, 2],
            "x": [0.25, np.nan],
            "inf": [math.inf, -math.inf],
            "yes": [True, False],
            "time": pd.to_datetime(["2026-01-02", ""]),
            "mixed": [np.float32(0.5), np.bool_(True)],
            ("auc", 5): [np.int64(3), 4],
        },
        index=pd.Index(["r", "s"], name="row"),
    )
    table = Table("t", "T", frame, highlight=True)
    report = Report("", (*full().parts, table))
    assert report.highlights == (table,)
    plain = table.plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["columns"] == ["row", "text", "n", "x", "inf", "yes", "time", "mixed", "auc / 5"]
    assert plain["rows"] == [
        ["r", "é", 1, 0.25, "∞", True, "2026-01-02 00:00:00", 0.5, 3],
        ["s", "caf\N{REPLACEMENT CHARACTER}", 2, None, "-∞", False, None, True, 4],
    ]


def test_plain_tables_are_short() -> None:
    table = Table("t", "T", pd.DataFrame(np.zeros((100, MAX_TABLE_COLUMNS + 5))))
    rows = table.plain()["rows"]
    assert (len(rows), len(rows[0])) == (30, MAX_TABLE_COLUMNS)


ILLEGIBLE = "caf\udce9 \x00\x1b[31m \ufffe"


def test_what_no_page_can_hold_is_replaced_wherever_it_comes_from() -> None:
    odd = Report(
        ILLEGIBLE,
        (
            Table(
                "t",
                ILLEGIBLE,
                pd.DataFrame([[ILLEGIBLE]], columns=pd.Index([ILLEGIBLE], dtype=object), dtype=object),
                ILLEGIBLE,
            ),
            Text(ILLEGIBLE, ILLEGIBLE),
            Figure("f", ILLEGIBLE, ILLEGIBLE, f"<svg><text>{ILLEGIBLE}</text></svg>", ILLEGIBLE),
        ),
    )
    html = page(
        odd,
        title=ILLEGIBLE,
        data_note=ILLEGIBLE,
        claims=[judge(GAIN, [1.0], ILLEGIBLE)],
        metrics={ILLEGIBLE: 1.0},
        inputs={"data_uri": ILLEGIBLE},
        warnings=[ILLEGIBLE],
    )
    parse(html.encode("utf-8").decode())
    shown = ILLEGIBLE.translate(dict.fromkeys([0xDCE9, 0, 0x1B, 0xFFFE], "\N{REPLACEMENT CHARACTER}"))
    assert html.count(shown) > 10


def test_illegible_labels_can_be_drawn() -> None:
    fig = new_figure()
    fig.axes[0].set(xlabel=literal(ILLEGIBLE))
    figure = Figure.from_matplotlib(fig, name="f", title="F", alt="Empty axes.")
    ElementTree.fromstring(figure.data)  # noqa: S314
    assert "caf\N{REPLACEMENT CHARACTER}" in str(figure.image)


def test_page_says_whose_data_it_was_and_whether_it_was_interrupted() -> None:
    html = page(data="user", data_note="audit: s3://b/a.parquet", status="interrupted")
    body = words(parse(html).find("body"))  # type: ignore[arg-type]
    assert body.startswith("Your own data. audit: s3://b/a.parquet")
    assert "Interrupted." in body
    assert "Interrupted." not in page()


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (
            judge(GAIN, [0.9, 1.0, 1.1]),
            "supported A beats B. 0 Measured 1, 95% interval 0.752 to 1.248, n = 3 (seeds) Claimed",
        ),
        (judge(GAIN, [-0.99, -1.01]), "not supported A beats B."),
        (judge(GAIN, [0.5]), "inconclusive A beats B. 0 Measured 0.5, n = 1 (seeds) Claimed above 0"),
        (
            not_measured(GAIN, "Needs a GPU."),
            "not measured at this scale A beats B. How Difference of AUC over seeds",
        ),
        (judge(replace(GAIN, unit="s", direction="less", threshold=0.25), [0.1]), "Claimed below 0.25 s"),
        (judge(replace(GAIN, direction="within", threshold=0.25), [0.1]), "Claimed between -0.25 and 0.25"),
        (judge(replace(GAIN, interval="exact"), [2, 3]), "2.5, range 2.00 to 3.00"),
        (
            judge(replace(GAIN, interval="sign"), [1.0] * 6, over="traces"),
            "Measured 1 (median), 95% interval 1 to 1, n = 6",
        ),
        (judge(replace(GAIN, interval="binomial", threshold=0.1), [0, 1, 1], over="trials"), "n = 3 (trials)"),
        (judge(GAIN, [0.5, 0.6], over="references", undecidable="Too few."), "inconclusive A beats B."),
    ],
)
def test_verdict_is_told_in_words(result: ClaimResult, says: str) -> None:
    article = parse(page(claims=[result])).find(".//article")
    assert article is not None
    assert says in words(article)
    assert "Paper 35.75 against 23.20" in words(article)
    assert result.note in words(article)


def test_number_line_has_a_text_alternative() -> None:
    line = parse(page()).find(".//article/{*}svg")
    assert line is not None
    assert line.get("role") == "img"
    assert line.get("aria-label") == "Measured 1, 95% interval 0.752 to 1.248; the claim is above 0."


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4),
    st.floats(5e-324, 1e300),
    st.sampled_from(["greater", "less", "within"]),
)
def test_number_line_stays_inside_its_box(values: list[float], threshold: float, direction: Any) -> None:
    claim = replace(GAIN, interval="exact", threshold=threshold, direction=direction)
    line = page_module._NumberLine.of(judge(claim, values))
    places = [
        *line.claimed,
        line.value,
        *(line.interval or ()),
        *line.samples,
        *line.thresholds,
        *(x for x, _ in line.labels),
    ]
    assert all(0 <= place <= 100 for place in places)
    assert line.claimed[0] <= line.claimed[1]


def test_close_thresholds_share_a_label() -> None:
    def labels(value: float) -> list[str]:
        claim = replace(GAIN, direction="within", threshold=0.02)
        return [label for _, label in page_module._NumberLine.of(judge(claim, [value])).labels]

    assert labels(0.01) == ["-0.02", "0.02"]
    assert labels(0.5) == labels(-0.5) == ["±0.02"]


HOSTILE = Report(
    ATTACK,
    (
        Figure("f", ATTACK, ATTACK, f"<svg><script>alert(1)</script>{ATTACK}</svg>", ATTACK),
        Table(
            "t",
            ATTACK,
            pd.DataFrame({ATTACK: [ATTACK, "x"], "n": [1, 2]}, index=pd.Index([ATTACK, 2], name=ATTACK)),
            ATTACK,
        ),
        Text(ATTACK, f"- {ATTACK}\n- {ATTACK}"),
    ),
)


def test_hostile_text_is_shown_and_never_becomes_markup() -> None:
    claim = replace(GAIN, statement=ATTACK, paper=ATTACK, measure=ATTACK, unit=ATTACK)
    tree = parse(
        page(
            HOSTILE,
            method=ATTACK,
            title=ATTACK,
            paper={"title": ATTACK, "authors": ATTACK, "url": "javascript:alert(1)"},
            data_note=ATTACK,
            claims=[judge(claim, [1.0, 2.0], ATTACK), not_measured(claim, ATTACK)],
            metrics={ATTACK: 1.0},
            metric_help={ATTACK: ATTACK},
            inputs={ATTACK: ATTACK, "list": [ATTACK]},
            versions={ATTACK: ATTACK},
            warnings=[ATTACK],
        )
    )
    scripts = list(tree.iter("script"))
    assert [words(script) for script in scripts] == [" ".join(script_text().split())]
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "footer",
        "section",
        "article",
    }
    allowed |= {
        "h1",
        "h2",
        "h3",
        "p",
        "strong",
        "code",
        "cite",
        "span",
        "ul",
        "li",
        "dl",
        "div",
        "dt",
        "dd",
        "wbr",
    }
    allowed |= {
        "figure",
        "figcaption",
        "img",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "script",
    }
    allowed |= {
        "details",
        "summary",
        *(f"{{http://www.w3.org/2000/svg}}{tag}" for tag in SVG_TAGS),
        *SVG_TAGS,
    }
    assert {str(element.tag) for element in tree.iter()} <= allowed
    attributes = {str(name) for element in tree.iter() for name in element.attrib}
    assert not any(name.startswith("on") for name in attributes), attributes
    assert all(image.get("src", "").startswith("data:image/") for image in tree.iter("img"))
    assert len(list(tree.iter("img"))) == 1
    assert list(tree.iter("a")) == []
    assert words(tree).count("{{7*7}}") > 20, "shown as it was given"


SVG_TAGS = ("svg", "rect", "line", "circle", "text")


def script_text() -> str:
    return (Path(page_module.__file__).parent / "report.js").read_text(encoding="utf-8")


@settings(max_examples=25, deadline=None)
@given(st.text(), st.text(), st.text())
def test_any_text_makes_valid_html_that_says_it(title: str, cell: str, value: str) -> None:
    """Control characters cannot be in HTML; the parser's complaint about them is not about our markup."""
    control = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef]|[\ufffe\uffff]")
    title, cell, value = (control.sub("", text) for text in (title, cell, value))
    table = Table("t", title, pd.DataFrame({title: [cell]}))
    tree = parse(page(Report(title, (table,)), inputs={"x": value}))
    cells = ["".join(td.itertext()) for td in tree.iter("td")]
    assert cell in cells
    assert value in cells


def test_policy_allows_inline_style_data_images_and_the_one_script() -> None:
    html = page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(script_text().encode()).digest()).decode()
    assert policy[1].split("; ") == [
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert html.index("Content-Security-Policy") < html.index("<style")
    assert f"<script>{script_text()}</script>" in html
    tree = parse(html)
    assert all(element.get("src", "data:").startswith("data:") for element in tree.iter())
    assert list(tree.iter("link")) == []
    assert "url(" not in html
    assert "@import" not in html


def test_only_web_addresses_become_links() -> None:
    for address in ("javascript:alert(1)", "data:text/html,x", " https://x y", "//x", "ftp://x"):
        html = page(paper={"title": "P", "url": address})
        assert list(parse(html).iter("a")) == []
    (link,) = parse(page(paper={"title": "P", "url": "https://x.org/?a=1&b=2"})).iter("a")
    assert link.get("href") == "https://x.org/?a=1&b=2"
    assert link.get("rel") == "noopener noreferrer"


@pytest.mark.slow
def test_same_arguments_give_the_same_bytes_in_another_process() -> None:
    script = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1]); import test_report as t; "
        "print(hashlib.sha256(t.drawn_page().encode()).hexdigest())"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    digest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert digest == hashlib.sha256(drawn_page().encode()).hexdigest()
    assert drawn_page() == drawn_page()


def drawn_page() -> str:
    return page(Report("It leaks.", (*full().parts, drawn_figure())))


def drawn_figure() -> Figure:
    fig = new_figure()
    (axes,) = fig.axes
    axes.plot([0, 1], [0, 1], label="a < b & c")
    axes.fill_between([0, 1], [0, 0], [1, 2], alpha=0.2)
    axes.set(xlabel="rate", ylabel=literal("cost $ vs price $"))
    axes.legend()
    return Figure.from_matplotlib(fig, name="line", title="Line", alt="A line that rises.")


def test_drawn_figure_is_small_svg_with_text_and_no_address_to_fetch() -> None:
    figure = drawn_figure()
    assert isinstance(figure.image, str)
    assert figure.filename == "line.svg"
    root = ElementTree.fromstring(figure.data)  # noqa: S314
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"rate", "cost $ vs price $", "a < b & c"} <= set(texts)
    assert len(figure.image) < 20_000
    assert "DOCTYPE" not in figure.image
    assert not re.search(r'href="(?!#)', figure.image)


def test_drawing_leaves_matplotlibs_settings_and_registry_alone() -> None:
    script = """if True:
        import sys, matplotlib
        from kfp_methods.report import Figure, new_figure

        def settings():  # asking for the backend would load pyplot
            return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}

        before = settings()
        fig = new_figure(rows=2, sharex=True)
        assert len(fig.axes) == 2
        Figure.from_matplotlib(fig, name="a", title="A", alt="B")
        assert fig.axes == []
        assert settings() == before
        assert "matplotlib.pyplot" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", script], check=True)


def test_figure_of_very_many_points_becomes_a_png() -> None:
    fig = new_figure()
    points = np.random.default_rng(0).random((20_000, 2))
    fig.axes[0].scatter(points[:, 0], points[:, 1], s=1)
    figure = Figure.from_matplotlib(fig, name="cloud", title="Cloud", alt="A uniform cloud.")
    assert figure.filename == "cloud.png"
    assert isinstance(figure.image, bytes)
    assert len(figure.image) < MAX_SVG_BYTES
    from PIL import Image

    assert Image.open(io.BytesIO(figure.data)).size == (900, 570)


def test_figure_in_the_page_is_the_drawn_bytes() -> None:
    from urllib.parse import unquote

    figure = drawn_figure()
    svg, png = parse(page(Report("", (figure, Figure("p", "P", "A dot.", PNG))))).iter("img")
    kind, _, content = svg.get("src", "").partition(",")
    assert kind == "data:image/svg+xml;charset=utf-8"
    assert unquote(content) == str(figure.image).replace("\n", " ")
    assert base64.b64decode(png.get("src", "").partition(",")[2]) == PNG
    assert (svg.get("alt"), png.get("alt")) == ("A line that rises.", "A dot.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alt": " "}, "alt is empty"),
        ({"image": "GIF"}, "neither"),
        ({"image": b"GIF"}, "neither"),
        ({"name": "../x"}, "name"),
    ],
)
def test_figure_that_cannot_be_shown_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Figure("roc", "ROC", "Two curves.", SVG), **change)


def test_two_parts_with_one_name_are_refused() -> None:
    part = Figure("roc", "ROC", "Two curves.", SVG)
    with pytest.raises(ValueError, match="roc"):
        Report("", (part, part))


def cells(frame: pd.DataFrame, **options: Any) -> tuple[list[str], list[list[str]], str]:
    (table,) = (
        element
        for element in parse(page(Report("", (Table("t", "T", frame, **options),)))).iter("table")
        if element.get("class") == "sortable"
    )
    rows = [[words(cell) for cell in row] for row in table.iter("tr")]
    caption = table.find("caption")
    assert caption is not None
    return rows[0], rows[1:], words(caption)


def test_table_formats_every_kind_of_value() -> None:
    frame = pd.DataFrame(
        {
            "float": [0.123456, 12345.6, np.nan],
            "int": [1, 20_000, -3],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "bool": [True, False, True],
            "text": ["é", None, ""],
            "time": pd.to_datetime(["2026-01-02", "", "2026-01-03 04:05"], format="ISO8601"),
            "kind": pd.Categorical(["a", "b", None]),
            "mixed": [1e-7, [1, 2], {"a": None}],
            "inf": [math.inf, -math.inf, 0.0],
            "small": np.array([0.1, 0.2, 0.3], dtype=np.float32),
            "big": [10**400, 2, 3],
        }
    )
    header, rows, _ = cells(frame)
    assert header == list(frame.columns)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    assert columns["float"] == ["0.1235", "12,346", "—"]
    assert columns["int"] == ["1", "20,000", "-3"]
    assert columns["nullable"] == ["1", "—", "3"]
    assert columns["bool"] == ["True", "False", "True"]
    assert columns["text"] == ["é", "—", ""]
    assert columns["time"] == ["2026-01-02 00:00:00", "—", "2026-01-03 04:05:00"]
    assert columns["kind"] == ["a", "b", "—"]
    assert columns["mixed"] == ["1e-7", "[1, 2]", "{'a': None}"]
    assert columns["inf"] == ["∞", "-∞", "0"]
    assert columns["small"] == ["0.1", "0.2", "0.3"]
    assert columns["big"][0].endswith("more characters)")


def test_table_says_how_much_it_leaves_out() -> None:
    frame = pd.DataFrame(
        np.zeros((1_500, MAX_TABLE_COLUMNS + 1)), columns=[f"c{i}" for i in range(MAX_TABLE_COLUMNS + 1)]
    )
    header, rows, caption = cells(frame, caption="Zeros.", max_rows=10)
    assert (len(header), len(rows)) == (MAX_TABLE_COLUMNS, 10)
    assert caption == "Zeros. Not shown: 1,490 more rows and 1 more column."
    assert cells(frame.iloc[:10, :3])[2] == "T"


def test_table_with_odd_labels_is_shown() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"], index=pd.Index(["r"], name="a"))
    assert cells(twice)[:2] == (["a", "a", "a"], [["r", "1", "2"]])
    nested = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("auc", 5)]))
    assert cells(nested)[0] == ["auc / 5"]
    assert cells(pd.DataFrame({"a": []}))[1] == [["No rows."]]
    assert cells(pd.DataFrame())[1] == [["No rows."]]


def test_table_keeps_exact_values_for_sorting() -> None:
    frame = pd.DataFrame({"x": [0.123456, 0.5, math.inf], "n": [10_000, 2, 3]})
    tree = parse(page(Report("", (Table("t", "T", frame),))))
    kept = [cell.get("data-sort") for cell in tree.iter("td") if cell.get("class") == "n"][2:]
    assert kept == ["0.123456", "10000", None, None, "Infinity", None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (math.nan, "—"),
        (math.inf, "∞"),
        (0, "0"),
        (0.0, "0"),
        (-0.5, "-0.5"),
        (2026, "2026"),
        (12_345, "12,345"),
        (1234.56, "1235"),
        (9_999.7, "10,000"),
        (1_234_567.8, "1,234,568"),
        (0.000123456, "0.0001235"),
        (0.0000123456, "1.235e-5"),
        (1.5e20, "1.5e20"),
        (1.5e-120, "1.5e-120"),
        (np.float32(0.1), "0.1"),
        (np.int64(10_000), "10,000"),
    ],
)
def test_number_has_four_digits(value: float | None, text: str) -> None:
    assert format_number(value) == text


@given(st.floats(-1e308, 1e308))
def test_formatted_number_is_within_four_digits_of_the_value(value: float) -> None:
    read = float(format_number(value).replace(",", ""))
    assert read == pytest.approx(value, rel=5.1e-4, abs=1e-323)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0101, 0.0145, "0.01010 to 0.01450"),
        (-0.5, 12.25, "-0.5 to 12.2"),
        (12_000, 15_000, "12,000 to 15,000"),
        (0.1, 0.1, "0.1 to 0.1"),
        (1e-12, 2e-12, "1e-12 to 2e-12"),
        (-1e300, 1e300, "-1e300 to 1e300"),
    ],
)
def test_interval_has_the_decimals_its_width_deserves(low: float, high: float, text: str) -> None:
    assert format_interval(low, high) == text


def test_usual_report_is_small() -> None:
    rows = pd.DataFrame(np.random.default_rng(0).random((1_000, 8)), columns=list("abcdefgh"))
    figures = tuple(replace(drawn_figure(), name=f"figure-{i}") for i in range(4))
    assert len(page(Report("", (*figures, Table("t", "T", rows)))).encode()) < 300_000


def test_colours_of_text_have_enough_contrast_on_every_ground() -> None:
    """WCAG 2.2, criterion 1.4.3: at least 4.5 to 1, in the light, in the dark, and on paper."""
    css = (Path(page_module.__file__).parent / "report.css").read_text(encoding="utf-8")
    themes = [
        {name: _hex(value) for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", block)}
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    assert len(themes) == 3
    pairs = [("ink", "page"), ("soft", "page"), ("link", "page"), ("ink", "panel"), ("ink", "open-panel")]
    pairs += [(tone, f"{tone}-panel") for tone in ("yes", "no", "open", "none")]
    for theme in themes:
        for ink, ground in pairs:
            bright, dim = sorted((_luminance(theme[ink]), _luminance(theme[ground])), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (ink, ground)


def _hex(colour: str) -> tuple[int, ...]:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    return tuple(bytes.fromhex(digits))


def _luminance(colour: tuple[int, ...]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_verdict_has_its_own_sign() -> None:
    results = [judge(GAIN, [1.0, 1.1]), judge(GAIN, [-1.0, -1.1]), judge(GAIN, [1.0]), not_measured(GAIN, "")]
    shown = [page_module._Verdict.of(replace(r, verdict=v)) for r, v in zip(results, Verdict, strict=True)]
    assert len({verdict.sign for verdict in shown}) == len({verdict.css for verdict in shown}) == 4


def test_module_imports_nothing_heavy() -> None:
    script = "import sys, kfp_methods.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.partition(".")[0] for name in loaded} & {
        "numpy",
        "scipy",
        "pandas",
        "matplotlib",
        "jinja2",
        "torch",
    }

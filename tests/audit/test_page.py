"""The page: complete, self-contained, labelled, and drawn without an error in a real browser."""

import json
import os
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from privfed.audit.page.charts import attack_charts, roc_charts, utility_charts, write_charts
from privfed.audit.page.palette import COOL, WARM, setting_colours
from privfed.audit.page.render import SECTIONS, render
from privfed.audit.report import AuditReport

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FRAME = """<!doctype html><iframe style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>
<script>
const watch = setInterval(() => {{
  const inner = frames[0].document.documentElement;
  if (!inner.dataset.charts) return;
  clearInterval(watch);
  const places = [...inner.querySelectorAll("[data-chart]")];
  const drawn = places.filter((place) => place.querySelector("svg path"));
  Object.assign(document.documentElement.dataset, {{
    charts: inner.dataset.charts,
    drawn: drawn.length,
    width: frames[0].innerWidth,
    overflow: inner.scrollWidth - inner.clientWidth,
  }});
}}, 50);
</script>"""


class Outline(HTMLParser):
    """Every start tag with its attributes, and the text of the page outside of script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._within: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._within):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(report: AuditReport) -> str:
    return render(report)


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return Outline(html)


def test_nothing_is_loaded_from_anywhere(html: str, outline: Outline) -> None:
    loading = {"src", "srcset", "data", "action", "poster", "background", "manifest"}
    for tag, attributes in outline.tags:
        assert not loading & set(attributes), (tag, attributes)
        if tag in {"link", "iframe", "object", "embed", "img", "base"}:
            pytest.fail(f"<{tag}> can load something")
        if tag == "a":
            assert str(attributes["href"]).startswith("#")
    policy = next(m["content"] for m in outline.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none';")
    assert "connect-src" not in str(policy)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_every_section_is_there_in_order_and_named(outline: Outline) -> None:
    sections = outline.all("section")
    assert [s["id"] for s in sections] == [anchor for anchor, _ in SECTIONS]
    ids = {attributes.get("id") for _, attributes in outline.tags}
    assert all(s["aria-labelledby"] in ids for s in sections)
    assert [a["href"] for a in outline.all("a")][1:] == [f"#{anchor}" for anchor, _ in SECTIONS]
    assert len(outline.all("main")) == len(outline.all("header")) == len(outline.all("footer")) == 1


def test_tables_have_captions_headers_and_labels(html: str, outline: Outline) -> None:
    assert len(outline.all("table")) == len(outline.all("caption")) == 4
    assert all(th.get("scope") in {"col", "row"} for th in outline.all("th"))
    assert all(td["data-label"] for td in outline.all("td"))
    assert html.count('tabindex="0" role="region" aria-label=') == 4


def test_every_chart_has_words_and_a_specification(html: str, outline: Outline, report: AuditReport) -> None:
    places = [attributes for _, attributes in outline.tags if "data-chart" in attributes]
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', html, re.DOTALL)[1])
    assert [p["data-chart"] for p in places] == list(specs)
    assert len(specs) == 1 + 2 + 3
    assert all(p["role"] == "img" and len(str(p["aria-label"])) > 40 for p in places)


def test_the_numbers_of_the_charts_are_in_the_tables(outline: Outline, report: AuditReport) -> None:
    text = " ".join(outline.text)
    for cell in report.aggregates:
        for row in cell.utility:
            assert f"{row.seeds.mean:.3f}" in text
        for attack in cell.attacks:
            assert f"{attack.auc.mean:.3f}" in text


def test_the_findings_are_in_plain_words(outline: Outline, report: AuditReport) -> None:
    text = " ".join(" ".join(outline.text).replace("\u00a0", " ").split())
    assert "AUC 0.99 means: shown one item the person did use and one they did not" in text
    assert "Nothing is guaranteed (epsilon = inf)" in text
    assert "ε = ∞" in text
    assert "ε = 68.3" in text
    assert report.protocol.sentence in text
    assert "No claim of this audit is contradicted" in text
    assert "GPFedRec's graph needs individual uploads" in text
    assert "synthetic data" not in text


def test_contradictions_and_synthetic_data_stand_at_the_top(report: AuditReport, make: SimpleNamespace) -> None:
    runs = [run for run in report.runs if run.method != "popularity"]
    page = render(make.report(runs, dataset=report.dataset | {"synthetic": True}))
    assert page.index("This audit contradicts itself") < page.index("<main")
    assert page.index('class="badge">synthetic data') < page.index("<main")
    assert "No claim of this audit is contradicted" not in page


def test_hostile_names_stay_text(make: SimpleNamespace, report: AuditReport) -> None:
    evil = "</script><script>alert(1)</script>"
    runs = [run.model_copy(update={"setting": run.setting.model_copy(update={"name": evil})}) for run in report.runs]
    page = render(make.report(runs, dataset=report.dataset | {"name": evil}))
    assert evil not in page
    assert len(Outline(page).all("script")) == 2


def test_warm_colours_promise_nothing_and_cool_ones_something(report: AuditReport) -> None:
    colours = setting_colours(report)
    assert colours["none"] in WARM
    assert colours["published_noise"] in WARM
    assert colours["local_laplace"] in COOL
    assert len(set(colours.values())) == 3


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


@pytest.mark.parametrize("pair", [*WARM, *COOL])
def test_every_hue_stands_out_on_either_background(pair: tuple[str, str]) -> None:
    light, dark = luminance(pair[0]), luminance(pair[1])
    assert (luminance("#fbfaf7") + 0.05) / (light + 0.05) >= 3
    assert (dark + 0.05) / (luminance("#262c30") + 0.05) >= 3


def test_charts_are_written_as_files_without_variables(report: AuditReport, tmp_path: Path) -> None:
    paths = write_charts(report, tmp_path / "charts")
    assert [path.name for path in paths] == [
        "utility_local_user.svg",
        "attacks_gpfedrec_trained_vs_never_seen.svg",
        "attacks_gpfedrec_trained_vs_held_out_of_the_same_user.svg",
        "roc_gpfedrec_none.svg",
        "roc_gpfedrec_published_noise.svg",
        "roc_gpfedrec_local_laplace.svg",
    ]
    for path in paths:
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
        assert "var(" not in path.read_text()
    assert "published noise (Laplace 0.3, unclipped)" in paths[0].read_text()


def test_infinity_has_its_own_lane_right_of_every_finite_epsilon(report: AuditReport) -> None:
    (chart,) = utility_charts(report)
    points = next(layer for layer in chart.spec["layer"] if "shape" in layer["encoding"])
    rows = chart.spec.get("datasets", {}).get(points["data"].get("name")) or points["data"]["values"]
    finite = [row["x"] for row in rows if row["epsilon"] != "∞"]
    infinite = [row["x"] for row in rows if row["epsilon"] == "∞"]
    assert finite == [68.3]
    assert min(infinite) > 100
    assert len(set(infinite)) == len(infinite) == 2


def test_trust_and_unit_are_never_mixed(report: AuditReport, make: SimpleNamespace) -> None:
    claims = [("local", "user"), ("central", "user"), ("central", "interaction")]
    runs = [run for run in report.runs if run.setting.slug == "none"]
    for index, (trust, unit) in enumerate(claims):
        run = make.run(
            "gpfedrec",
            "local_laplace",
            0,
            setting={"slug": f"s{index}", "name": f"s{index}"},
            guarantee=make.guarantee("local_laplace", trust=trust, unit=unit),
        )
        runs.append(run)
    charts = utility_charts(make.report(runs))
    assert [chart.slug for chart in charts] == [f"utility_{trust}_{unit}" for trust, unit in claims]
    for index, chart in enumerate(charts):
        assert [f"s{other}:" in chart.description for other in range(3)] == [other == index for other in range(3)]
        assert "no protection: epsilon ∞" in chart.description


def test_an_audit_with_nothing_but_popularity_has_a_page(make: SimpleNamespace) -> None:
    report = make.report([make.run("popularity", "none", 0)])
    assert "No ranking quality was measured" in render(report)
    assert utility_charts(report) == attack_charts(report) == roc_charts(report) == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_draws_it_without_error_or_overflow(html: str, tmp_path: Path, width: int) -> None:
    page = tmp_path / "frame.html"
    page.write_text(FRAME.format(width=width, page=escape(html)), encoding="utf-8")
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=10000"
    )
    done = subprocess.run(
        [
            str(CHROMIUM),
            *flags.split(),
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1500,1000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    root = Outline(done.stdout).all("html")[0]
    found = {key: root.get(f"data-{key}") for key in ("charts", "drawn", "width", "overflow")}
    assert found == {"charts": "drawn", "drawn": "6", "width": str(width), "overflow": "0"}

"""The page: complete, self-contained, labelled, and as long as there is something to say."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from privfed.audit.page.charts import (
    Chart,
    Charts,
    attribute_charts,
    frontier_charts,
    inclusion_charts,
    measured_charts,
    roc_charts,
    slice_charts,
    utility_charts,
    write_charts,
)
from privfed.audit.page.dots import grid, kinds, strip
from privfed.audit.page.palette import COOL, WARM, setting_colours
from privfed.audit.page.render import render, sections
from privfed.audit.page.rows import inclusion
from privfed.audit.report.ceilings import inclusion_auc_ceiling
from privfed.audit.report.records import AuditReport


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


@pytest.fixture(scope="module")
def full(full_report: AuditReport) -> Outline:
    return Outline(render(full_report))


@pytest.fixture(scope="module")
def large(large_report: AuditReport) -> Outline:
    return Outline(render(large_report))


NEW = ("measured", "inclusion", "slices", "attributes")


def test_a_section_is_there_where_it_has_something_to_show(outline: Outline, full: Outline) -> None:
    short, long = ([s["id"] for s in page.all("section")] for page in (outline, full))
    assert [anchor for anchor in long if anchor not in NEW] == short
    assert [anchor for anchor in long if anchor in NEW] == list(NEW)
    assert short[0] == "verdict"
    assert short[-1] == "configuration"


@pytest.mark.parametrize("which", ["report", "full_report"])
def test_every_section_is_named_and_linked(which: str, request: pytest.FixtureRequest) -> None:
    report: AuditReport = request.getfixturevalue(which)
    outline = Outline(render(report))
    parts = outline.all("section")
    assert [s["id"] for s in parts] == [anchor for anchor, _ in sections(report)]
    ids = {attributes.get("id") for _, attributes in outline.tags}
    assert all(s["aria-labelledby"] in ids for s in parts)
    assert [a["href"] for a in outline.all("a")][1:] == [f"#{anchor}" for anchor, _ in sections(report)]
    assert len(outline.all("main")) == len(outline.all("header")) == len(outline.all("footer")) == 1


def test_tables_have_captions_headers_and_labels(html: str, outline: Outline) -> None:
    assert len(outline.all("table")) == len(outline.all("caption")) == 5
    assert all(th.get("scope") in {"col", "row"} for th in outline.all("th"))
    assert all(td["data-label"] for td in outline.all("td"))
    assert html.count('tabindex="0" role="region" aria-label=') == 4


def test_every_chart_has_words_and_a_specification(html: str, outline: Outline, report: AuditReport) -> None:
    places = [attributes for _, attributes in outline.tags if "data-chart" in attributes]
    specs = json.loads(re.search(r'id="chart-specs">(.*?)</script>', html, re.DOTALL)[1])
    assert [p["data-chart"] for p in places] == list(specs)
    assert list(specs) == [chart.slug for chart in Charts.from_report(report).all()]
    assert len(specs) == 1 + 1 + 2 + 3 + 2
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
    drawn, printed = paths[::2], paths[1::2]
    assert [path.name for path in drawn] == [
        "utility_local_user.svg",
        "frontier_local_user.svg",
        "attacks_gpfedrec_trained_vs_never_seen.svg",
        "attacks_gpfedrec_trained_vs_held_out_of_the_same_user.svg",
        "roc_gpfedrec_none.svg",
        "roc_gpfedrec_published_noise.svg",
        "roc_gpfedrec_local_laplace.svg",
        "cost_bytes.svg",
        "cost_seconds.svg",
    ]
    assert [path.name for path in printed] == [path.with_suffix(".pdf").name for path in drawn]
    assert all(path.read_bytes().startswith(b"%PDF") for path in printed)
    for path in drawn:
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
        assert "var(" not in path.read_text()
    assert "published noise (Laplace 0.3, unclipped)" in paths[0].read_text()


def values(chart: Chart, channel: str) -> list[dict]:
    """The rows behind the first layer that has a channel."""
    layer = next(layer for layer in chart.spec["layer"] if channel in layer["encoding"])
    return layer["data"].get("values") or chart.spec["datasets"][layer["data"]["name"]]


def test_infinity_has_its_own_lane_right_of_every_finite_epsilon(report: AuditReport) -> None:
    (chart,) = utility_charts(report)
    rows = values(chart, "shape")
    finite = [row["x"] for row in rows if row["cost"] != "∞"]
    infinite = [row["x"] for row in rows if row["cost"] == "∞"]
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
        assert "no privacy mechanism: epsilon ∞" in chart.description


def test_an_audit_with_nothing_but_popularity_has_a_page(make: SimpleNamespace) -> None:
    report = make.report([make.run("popularity", "none", 0)])
    assert "No ranking quality was measured" in render(report)
    assert Charts.from_report(report).all() == []


def test_what_another_point_beats_both_ways_is_pale(report: AuditReport) -> None:
    (against_epsilon,), (against_attack,) = utility_charts(report), frontier_charts(report)
    pale = {row["setting"]: row["pale"] for row in values(against_epsilon, "shape")}
    published = "published noise (Laplace 0.3, unclipped)"
    local = "local Laplace (eps0 = 1 per upload, C = 1)"
    assert pale == {"no privacy mechanism": False, published: True, local: False}
    assert not any(row["pale"] for row in values(against_attack, "shape"))
    found = {row["setting"]: row["x"] for row in values(against_attack, "shape")}
    assert found["no privacy mechanism"] > found[published] > found[local] == pytest.approx(0.0104, abs=1e-3)


def test_points_of_equal_epsilon_lie_side_by_side(large_report: AuditReport) -> None:
    rows = [row for row in values(utility_charts(large_report)[0], "shape") if row["cost"] == "68.3"]
    places = sorted(row["x"] for row in rows)
    assert len(set(places)) == 5
    assert places[2] == pytest.approx(68.3)
    assert places[-1] / places[0] < 2


def test_an_unresolved_rate_gives_way_to_the_auc(make: SimpleNamespace) -> None:
    unresolved = [{"fpr": 0.01, "tpr": None, "false_positives": 0}]
    runs = [
        make.run("gpfedrec", setting, 0, attacks=[make.attack("row norm", auc, [1], tpr_at_fpr=unresolved)])
        for setting, auc in (("none", 0.9), ("local_laplace", 0.52))
    ]
    (chart,) = frontier_charts(make.report([make.run("popularity", "none", 0), *runs]))
    assert sorted(row["x"] for row in values(chart, "shape")) == [0.52, 0.9]
    assert "AUC of the strongest attack" in chart.description


def test_claims_and_measurements_stand_on_one_axis(full_report: AuditReport) -> None:
    charts = {chart.slug: chart for chart in measured_charts(full_report)}
    assert list(charts) == ["measured_user", "measured_interaction", "measured_upload"]
    rows = next(rows for rows in charts["measured_user"].spec["datasets"].values() if "zero" in rows[0])
    assert {row["said"] for row in rows} == {"claimed 68.3", "claimed ∞"}
    finite = next(row for row in rows if row["said"] == "claimed 68.3")
    assert finite["x"] == pytest.approx(math.log1p(68.3))
    assert finite["x"] < next(row for row in rows if row["said"] == "claimed ∞")["x"]
    for kind in ("lower bound 0.064", "estimate 0.78 (0.15 to 1.4), placebo floor 1.8"):
        assert kind in charts["measured_user"].description


def test_what_is_read_on_the_device_stands_beside_no_claim(make: SimpleNamespace) -> None:
    run = make.full("gpfedrec", "local_laplace", 0)
    device = run.empirical[0].model_copy(update={"tap": "raw", "value": 3.25, "accounted": math.inf})
    report = make.report([make.run("popularity", "none", 0), run.model_copy(update={"empirical": [device]})])
    assert measured_charts(report) == []
    page = render(report)
    assert "outside the claim" in page
    assert "is at least 3.25" not in page


def test_a_game_of_inclusion_bits_is_drawn_below_its_ceiling(full_report: AuditReport) -> None:
    charts = {chart.slug: chart for chart in inclusion_charts(full_report)}
    assert list(charts) == [f"inclusion_gpfedrec_{slug}" for slug in ("none", "published_noise", "local_laplace")]
    kinds = {slug: {row["kind"] for row in values(chart, "strokeWidth")} for slug, chart in charts.items()}
    assert kinds["inclusion_gpfedrec_none"] == {"strongest", "other", "popularity"}
    assert kinds["inclusion_gpfedrec_local_laplace"] == {"strongest", "other", "popularity", "ceiling"}
    assert "The claim allows at most" in charts["inclusion_gpfedrec_local_laplace"].description
    natural = [chart.description for chart in roc_charts(full_report)]
    assert not any("The claim allows" in text for text in natural)


def test_tenths_are_drawn_for_items_and_for_people(full_report: AuditReport, report: AuditReport) -> None:
    items, people = slice_charts(full_report)
    assert (items.slug, people.slug) == ("slices_gpfedrec_popularity", "slices_gpfedrec_activity")
    assert len(values(items, "color")) == 3 * 10
    assert slice_charts(report) == []


def test_attributes_are_drawn_beside_true_histories(full_report: AuditReport) -> None:
    gender, age = attribute_charts(full_report)
    assert "from the true history: 0.800" in gender.description
    assert "from the true history: 0.740" in age.description


def test_the_new_parts_say_in_words_what_they_show(full: Outline) -> None:
    text = " ".join(" ".join(full.text).replace("\u00a0", " ").split())
    for said in (
        "a random bit decided for 4,000 interactions",
        "within the claim",
        "nothing is claimed",
        "placebo floor 1.8",
        "too weak to be tested",
        "Baseline, seen by nobody",
        "It knows the attribute of half of the people",
        "LaplaceDpEvent(noise_multiplier=1.0)",
        "100 times",
        "for the rarest tenth of items 0.999",
        "in no tenth is the attack better than both chance and the popularity guess",
    ):
        assert said in text


def test_a_refuted_claim_and_a_beaten_ceiling_are_an_alarm(make: SimpleNamespace) -> None:
    run = make.full("gpfedrec", "local_laplace", 0)
    bound = next(row for row in run.empirical if row.kind == "lower bound" and row.unit == "upload")
    run = run.model_copy(update={"empirical": [bound.model_copy(update={"value": 1.4, "consistent": False})]})
    report = make.report([make.run("popularity", "none", 0), run])
    page = render(report)
    assert [c.rule for c in report.contradictions] == ["exceeded_claim"]
    alarm = " ".join(Outline(page[page.index('role="alert"') : page.index("<nav")]).text)
    assert "epsilon of one upload of the mechanism is at least 1.4" in alarm
    assert "contradicts the claim" in page


def test_a_large_audit_is_folded(large: Outline, large_report: AuditReport) -> None:
    cards = [a for a in large.all("article") if "card" in str(a.get("class"))]
    assert len(cards) == 4
    settings = [a for a in large.all("details") if a.get("class") == "set"]
    assert len(settings) == 20
    assert ["open" in a for a in settings] == [True] + 19 * [False]
    text = " ".join(" ".join(large.text).split())
    assert "GPFedRec · central Gaussian, epsilon 7.94" in text
    assert "Every measurement (55 rows)" in text
    charts = Charts.from_report(large_report)
    assert [chart.slug for chart in charts.attacks] == [
        "attacks_trained_vs_never_seen",
        "attacks_trained_vs_held_out_of_the_same_user",
    ]
    assert len(charts.roc) == len(charts.inclusion) == 5
    assert len(charts.all()) < 40


def test_settings_that_share_no_method_may_share_a_colour(make: SimpleNamespace) -> None:
    names = [f"s{index}" for index in range(10)]
    runs = [
        make.run(method, "local_laplace", 0, setting={"slug": name, "name": name})
        for index, name in enumerate(names)
        for method in (("fedmf",) if index < 4 else ("fedncf",) if index < 8 else ("fedmf", "fedncf"))
    ]
    report = make.report(runs)
    colours = setting_colours(report)
    assert len({colours[name] for name in names[:4]}) == len({colours[name] for name in names[4:8]}) == 4
    page = render(report)
    assert "s0 (FedMF)" in page
    assert "s9 (" not in page


def test_the_first_screen_is_verdict_table_and_advice(large: Outline, large_report: AuditReport) -> None:
    text = " ".join(" ".join(large.text).replace("\u00a0", " ").split())
    order = [
        "Five of 20 settings are guaranteed and better than popularity",
        large_report.advice,
        "Guaranteed, and better than popularity 5 of 20",
        "Nothing guaranteed 15 of 20",
        "Is it safe?",
        "A suspicion of 1 in 100 grows to at most 97 in 100 at ε = 8.",
        "what one wants",
        "Who learns what",
        "What is guaranteed A guarantee holds against every attack",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "Compared worlds" not in text
    assert "Compared data sets" in text


def test_under_central_noise_the_server_has_a_line_and_a_panel_of_its_own(large: Outline) -> None:
    text = " ".join(" ".join(large.text).replace("\u00a0", " ").split())
    assert "the server, which adds the noise: >99 , outside the guarantee" in text
    assert text.index("Somebody who sees the sums") < text.index(
        "The server, which adds the noise outside the guarantee"
    )
    assert "It receives every upload before the noise, so it has to be trusted." in text


def test_dots_beyond_popularity_are_told_from_those_it_explains(report: AuditReport) -> None:
    shown = {cell.setting.slug: kinds(cell.headline) for cell in report.aggregates if cell.headline}
    assert shown == {
        "none": [("dk", 84), ("dx", 15), ("do", 1)],
        "published_noise": [("dk", 84), ("dx", 9), ("do", 7)],
        "local_laplace": [("dk", 50), ("dx", 0), ("do", 50)],
    }
    cell = next(cell for cell in report.aggregates if cell.setting.slug == "published_noise")
    assert cell.headline is not None
    drawn = [strip(kinds(cell.headline)), grid(cell.headline)]
    for svg, step in zip(drawn, (4.5, 10.0), strict=True):
        runs = [round((float(h) - 0.01) / step) + 1 for h in re.findall(r"h([\d.]+)", str(svg))]
        assert sum(runs) == 100


def test_nothing_is_drawn_below_ten_false_alarms_and_bands_stand_around_curves(full_report: AuditReport) -> None:
    for chart in roc_charts(full_report):
        rows = [row for same in chart.spec["datasets"].values() for row in same]
        rates = [row["fpr"] for row in rows if row.get("kind") == "strongest" or "hi" in row]
        assert min(rates) >= 10 / 150_000
        band = {row["fpr"]: (row["lo"], row["hi"]) for row in rows if "hi" in row}
        curve = {row["fpr"]: row["tpr"] for row in rows if row.get("kind") == "strongest"}
        assert list(band) == list(curve)
        assert all(low <= curve[at] <= high for at, (low, high) in band.items())


def test_few_nonmembers_draw_no_left_edge(make: SimpleNamespace) -> None:
    few = [make.attack(name, 0.9, [1], n_nonmembers=200) for name in ("row norm", "popularity")]
    (chart,) = roc_charts(
        make.report([make.run("popularity", "none", 0), make.run("gpfedrec", "none", 0, attacks=few)])
    )
    rows = [row for same in chart.spec["datasets"].values() for row in same if "kind" in row]
    assert min(row["fpr"] for row in rows if row["kind"] != "ceiling") >= 10 / 200


@pytest.mark.parametrize(("epsilon", "words"), [(0.4, "below the ceiling"), (9.0, "too weak to be tested")])
def test_a_ceiling_at_the_top_is_too_weak_to_be_tested(make: SimpleNamespace, epsilon: float, words: str) -> None:
    claim = make.guarantee("local_laplace", epsilon=epsilon)
    highest = inclusion_auc_ceiling(claim)
    ceiling = {"epsilon": epsilon, "delta": 1e-5, "auc": highest, "beaten": False}
    about = {"membership": "randomised", "game": "randomised inclusion", "popularity_auc": 0.5}
    rows = [make.attack("row norm", 0.52, [1], ceiling=ceiling, **about), make.attack("popularity", 0.5, [1], **about)]
    (line,) = inclusion(make.report([make.run("gpfedrec", "local_laplace", 0, guarantee=claim, attacks=rows)]))
    assert line["cells"][-1] == (words,)

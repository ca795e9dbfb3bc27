"""A report as a page: what it shows, that nothing in it comes from elsewhere or is taken for markup,
and the record of steps that its chart is made of."""

import dataclasses
import re
import time
from html.parser import HTMLParser

import pytest

from fastloader import FastLoader
from fastloader._core.observation.report_page import waits_chart
from fastloader._core.observation.statistics import ROOM, AutoChoice, RecentSteps, Stage, Step
from support import MEAN, STD, Pictures

HOSTILE = "<script>alert('1')</script> & \"quoted\""


class Page(HTMLParser):
    """Tags, attributes and text of a page. Raises AssertionError where tags do not nest."""

    EMPTY = {"meta", "rect", "line"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)

    @property
    def text(self):
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def report():
    loader = FastLoader(Pictures(12), batch_size=2, device="cpu", mean=MEAN, std=STD)
    for _ in loader.headspace(8):
        time.sleep(0.002)
    for _ in range(2):
        for _ in loader:
            time.sleep(0.002)
    made = loader.report()
    loader.close()
    return made


def test_the_file_says_what_the_report_says(report, tmp_path):
    report.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    body = page.text[page.text.rindex("}") :]  # without the styles
    assert text.startswith("<!doctype html>")
    assert body.index(report.verdict[1:]) < body.index(report.advice[1:]) < body.index("Stages")
    assert body.index("Stages") < body.index("Waiting per step") < body.index("More figures")
    for stage in report.stages.values():
        assert stage.name in body and stage.by in body and f"{stage.seconds:.3f} s" in body
    assert "steps per second" in body and "to win if data were free" in body
    assert "batches 1 to 13" in body.lower(), "one of headspace, and two epochs of six"
    assert page.tags.count("rect") == 2 * 13


def test_the_file_needs_no_other(report, tmp_path):
    report.html(str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not {"href", "src", "xlink:href", "onload", "onclick"} & {
        key for key, _ in page.attributes
    }
    assert not re.search(r"https?:|url\(|@import", text)
    assert dict(page.attributes)["content"] and "width=device-width" in text
    assert "prefers-color-scheme:dark" in text


def test_a_notebook_shows_the_same_and_keeps_its_own_looks(report):
    text = report._repr_html_()
    Page(text)
    report_class = '<div class="fastloader-report">'
    assert text.startswith(report_class) and "<body" not in text and "<html" not in text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    rules = re.sub(r"@media[^{]*\{", "", style)
    for selectors in re.findall(r"([^{}]+)\{", rules):
        assert all(one.strip().startswith(".fastloader-report") for one in selectors.split(","))


def test_everything_is_escaped(report, tmp_path):
    stage = Stage(HOSTILE, 1.0, 2, HOSTILE, HOSTILE, 1, bound=None)
    hostile = dataclasses.replace(
        report,
        verdict=HOSTILE,
        advice=HOSTILE,
        path=HOSTILE,
        device=HOSTILE,
        stages={HOSTILE: stage},
        auto={HOSTILE: AutoChoice(1, HOSTILE)},
    )
    hostile.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text and 'alert("' not in text and "alert('" not in text
    page = Page(text)
    assert page.texts.count(HOSTILE) >= 2 and "script" not in page.tags


def test_before_the_first_batch_there_is_a_page_too(tmp_path):
    loader = FastLoader(Pictures(4), batch_size=2)
    loader.report().html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    Page(text)
    assert "Nothing to say yet" in text and "Waiting per step" not in text


def test_a_path_in_no_folder_is_refused(report, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone/report\.html: there is no such folder"):
        report.html(tmp_path / "gone" / "report.html")


def test_recent_has_every_wait_and_step(report):
    assert len(report.recent) == report.batches == 13
    assert [step.first for step in report.recent] == [True, *[True, *[False] * 5] * 2]
    assert report.recent[0].step_s is None, "headspace broke its epoch off after one batch"
    steps = [step.step_s for step in report.recent if step.step_s is not None]
    assert len(steps) == 12 and min(steps) >= 0.002
    assert sum(steps) == pytest.approx(report.step_s)
    inner = sum(step.wait_s for step in report.recent if not step.first)
    assert inner == pytest.approx(report.wait_s - report.edge_wait_s)
    assert "recent" not in report.as_dict() and "recent" not in repr(report)


def test_the_record_is_bounded():
    record = RecentSteps()
    for number in range(3 * ROOM):
        record.waits.append((0.001, float(number), False, False))
    steps = record.steps()
    assert len(steps) == ROOM and steps[-1] == Step(3 * ROOM - 1, None, False)
    assert steps[0].wait_s == 2 * ROOM


def test_a_long_loop_is_drawn_in_means():
    steps = (
        [Step(0.001, 0.009, False)] * 500 + [Step(5.0, 0.009, True)] * 2 + [Step(3.0, None, False)]
    )
    text = waits_chart(steps, last=1503)
    assert text.count("<rect") == 2 * 84, "six batches a column"
    assert "Batches 1001 to 1503" in text and "6 batches in the mean" in text
    assert "batches 1001 to 1006: waited 1 ms, step 9 ms" in text
    assert text.count("an epoch begins: 5 s until its first batch") == 2
    assert "20 ms" in text, "the one wait of seconds does not make all others invisible"
    for y, height in re.findall(r'y="([\d.]+)" width=".84" height="([\d.]+)"', text):
        assert float(y) >= 0 and float(y) + float(height) <= 100.01

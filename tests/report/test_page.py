"""What stands on the page, parsed as a browser would."""

import math
import re

from lit_rlhf.report.page import page as write_page
from lit_rlhf.report.read import read_runs

SECTIONS = ["curves", "findings", "sentinels", "samples", "checks", "record"]


def test_a_run_shows_every_section_and_loads_nothing(grpo, page):
    html = write_page(read_runs([grpo()]))
    seen = page(html)
    assert [name for name in seen.ids if name in SECTIONS] == SECTIONS
    assert all(link.startswith("#") or link == "data:," for link in seen.loads)
    assert "script" not in seen.tags
    assert "url(" not in html
    assert "@import" not in html
    assert "longer is better?" in seen.text


def test_reward_length_and_truncation_share_one_figure(grpo, page):
    html = write_page(read_runs([grpo()]))
    svg = re.search(r'<svg[^>]*aria-label="Reward, length and truncation">.*?</svg>', html).group()
    for name in ("reward", "eval/pass_at_1", "completions/mean_length", "completions/clipped_ratio"):
        assert f"<title>{name}</title>" in svg
    seen = page(html)
    steps, rewards = seen.column("update"), seen.column("reward")
    assert len(steps) == 12
    assert rewards[steps.index("0")] == "0.2"
    assert rewards[steps.index("40")] == "0.6"
    assert seen.column("eval/pass_at_1")[-1] == "0.8 ± 0.02"


def test_findings_stand_with_their_consequences_and_in_the_figures(grpo, page):
    html = write_page(read_runs([grpo()]))
    text = "".join(page(html).text)
    assert "Began between updates 12 and 15 (exact). open at 20 → worse at 30." in text
    assert re.search(r"Explains:.*Long", text)
    assert "70% no <penalty>" in text
    assert "max_new_tokens: 12 → 24" in text
    assert "no stop token" in text
    svg = re.search(r'<svg[^>]*aria-label="Reward, length and truncation">.*?</svg>', html).group()
    band = re.search(r'class="band critical"><title>[^<]*</title><rect x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)
    first, width = map(float, band.groups())
    ticks = {
        value: float(x)
        for x, value in re.findall(r'class="tick" x="([\d.]+)" y="\d+" text-anchor="middle">(\d+)<', svg)
    }
    per_update = (ticks["40"] - ticks["0"]) / 40
    assert math.isclose(first, ticks["0"] + 12 * per_update, abs_tol=0.2)
    assert math.isclose(width, 3 * per_update, abs_tol=0.2)


def test_several_runs_are_overlaid_compared_and_told_apart(grpo, make_run, page):
    (first, second) = grpo("one dir/grpo"), grpo("two dir/grpo", num=20, note="half")
    for folder, rate in ((first, 1), (second, 2)):
        callbacks = "" if rate == 1 else "  - class_path: my.Extra\n"
        text = f"trainer:\n  callbacks:\n{callbacks}  - class_path: my.Stop\nmodel:\n  lr: {rate}\nname: {rate}\n"
        (folder / "config.yaml").write_text(text)
    seen = page(write_page(read_runs([first, second])))
    assert seen.column("one dir/grpo: reward")[-1] == "0.6"
    assert {"half", "longer is better?"} <= set(seen.text)
    settings = next(table for table in seen.tables if table[0][0] == "setting")
    assert settings[1:] == [
        ["trainer.callbacks.Extra.class_path", "–", "my.Extra"],
        ["model.lr", "1", "2"],
    ] or settings[1:] == [["model.lr", "1", "2"], ["trainer.callbacks.Extra.class_path", "–", "my.Extra"]]
    equal = {row[0]: row[1:] for row in next(table for table in seen.tables if table[0][0] == "metric")[1:]}
    assert equal["update"] == ["20", "20"]
    assert equal["eval/pass_at_1"] == ["0.6 ± 0.02", "0.6 ± 0.02"]


def test_text_of_a_model_is_never_markup(make_run, page):
    evil = "</pre><script>alert(1)</script>\u202e\x07<|im_end|>\ud800 ünï 🙂" + "x" * 9000
    sample = {
        "step": 0,
        "prompt_id": 0,
        "prompt": evil,
        "completion": evil,
        "rewards": {evil[:30]: None},
        "finish": evil,
    }
    html = write_page(
        read_runs([make_run("evil", samples=[sample], run={"note": evil, "status": evil, "run": {"a": evil}})])
    )
    seen = page(html)
    assert "script" not in seen.tags
    assert "<|im_end|>" in "".join(seen.text)
    assert html.encode("utf-8")
    assert len(html) < 70_000

import csv
import json
from html.parser import HTMLParser

import pytest

VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """What a browser would see: ids, links, text, and the cells of each table; fails on tags that do not close."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.tags, self.text, self.tables, self.loads = [], [], [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.loads += [attrs[name] for name in ("src", "href", "srcset", "data") if name in attrs]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def column(self, title):
        """A column of the first table that has it, without its head."""
        table = next(table for table in self.tables if title in table[0])
        return [row[table[0].index(title)] for row in table[1:]]


@pytest.fixture
def page():
    return Page


@pytest.fixture
def make_run(tmp_path):
    """Write a run directory: rows of metrics, and files by name, JSON lines given as lists."""

    def make(name, rows=(), **files):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if rows:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            with (folder / "metrics.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        for stem, content in files.items():
            if isinstance(content, list):
                text = "".join(json.dumps(line) + "\n" for line in content)
                (folder / f"{stem}.jsonl").write_text(text, encoding="utf-8")
            else:
                (folder / f"{stem}.json").write_text(json.dumps(content))
        return folder

    return make


@pytest.fixture
def grpo(make_run):
    """A run whose reward, length and truncation rise together, and that the doctor has told of it."""

    def make(name="grpo", num=40, note="longer is better?"):
        rows = [
            {
                "global_step": step,
                "hours": step / 100,
                "reward": 0.2 + step / 100,
                "reward_std": 0.3,
                "frac_reward_zero_std": 0.25,
                "advantages/frac_nonzero": 0.75,
                "completions/mean_length": 10 + step,
                "completions/clipped_ratio": step / 50,
                "kl": step / 1000,
                "entropy": 0.5,
                "grad_norm": 1.5,
                "learning_rate": 4e-4,
                "loss": "nan" if step == 30 else 1e-8,
                "eval/pass_at_1": 0.4 + step / 100 if step % 10 == 0 else "",
                "eval/pass_at_1_se": 0.02 if step % 10 == 0 else "",
                "sampler/speed": 5.0,
            }
            for step in range(num + 1)
        ]
        cause = {"id": "a", "text": "no <penalty>", "weight": 0.7, "speaks_for": ["length rises"], "speaks_against": []}
        finding = {
            "title": "Cut by the limit",
            "severity": "critical",
            "basis": "exact",
            "onset": [12, 15],
            "raised": 20,
        }
        finding |= {"summary": "40 % are cut", "evidence": [{"metric": "completions/clipped_ratio", "value": 0.4}]}
        finding |= {"causes": [cause | {"next_check": "sample <twice>", "setting": "max_new_tokens: 12 → 24"}]}
        samples = [
            {"step": step, "event": event, "prompt_id": 7, "prompt": "<bos>add", "completion": f"sum {step}<eos>"}
            | {"num_tokens": 3, "finish": "length", "rewards": {"right": step / 40}}
            for event, step in enumerate((0, 20, 40))
        ]
        sentinels = [{"step": step, "set": "facts", "n": 60, "accuracy": 0.9, "se": 0.04} for step in (0, 20, 40)]
        checks = [
            {"step": 0, "facts": {"algorithm": "GRPO"}},
            {"name": "ratio", "status": "ok", "step": 1, "summary": "1"},
            {"name": "stop", "status": "unknown", "step": 1, "summary": "no stop token"},
        ]
        return make_run(
            name,
            rows,
            run={"name": name, "note": note, "status": "finished", "seed": 42, "run": {"algorithm": "GRPO"}},
            samples=samples,
            sentinels=sentinels,
            checks=checks,
            findings=[
                finding | {"kind": "truncation", "state": "open", "step": 20},
                finding | {"kind": "long", "state": "open", "step": 22, "explained_by": "truncation", "title": "Long"},
                finding | {"kind": "truncation", "state": "worse", "step": 30},
            ],
        )

    return make

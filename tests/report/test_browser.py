"""The page in Chromium: no mistake on the console, nothing loaded, no sideways scrolling on a phone."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from lit_rlhf.commands.report import main
from lit_rlhf_callbacks.errors import UserError

# The page reports to the frame around it, since headless windows are never as narrow as a phone.
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message || event.target.tagName)), true);
addEventListener("load", () => {
  const width = () => document.documentElement.scrollWidth;
  const shown = name => [...document.querySelectorAll(name)].filter(each => each.offsetHeight).length;
  const seen = {width: width(), inner: innerWidth, byStep: shown("div.by-step"), hours: shown("div.by-hours")};
  document.querySelectorAll("details").forEach(each => each.open = true);
  seen.unfolded = width();
  document.getElementById("x-hours").click();
  seen.byStepAfter = shown("div.by-step"); seen.hoursAfter = shown("div.by-hours");
  seen.loaded = performance.getEntriesByType("resource").length;
  seen.sections = [...document.querySelectorAll("main > section")].map(each => each.id);
  seen.smallest = Math.min(...[...document.querySelectorAll("svg text")].filter(each => each.getClientRects().length)
    .map(each => parseFloat(getComputedStyle(each).fontSize) * each.ownerSVGElement.clientWidth / 360));
  parent.postMessage(JSON.stringify({...seen, errors}), "*");
});
</script>"""
FRAME = """<body style="margin:0"><iframe src="page.html" style="border:0;width:360px;height:800px"></iframe><pre></pre>
<script>onmessage = event => document.querySelector("pre").textContent = "SEEN" + event.data + "END";</script>"""
QUIET = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium on the path")
def test_a_phone_shows_it_without_mistakes(grpo, tmp_path):
    out = tmp_path / "report.html"
    main(["report", str(grpo("first run")), str(grpo("second", num=20)), "--out", str(out)])
    html = out.read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(html.replace("<head>", f"<head>{PROBE}", 1), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME)
    command = ["chromium", "--headless", "--no-sandbox", *QUIET.split(), "--disable-sync", "--enable-logging=stderr"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    address = (tmp_path / "frame.html").as_uri()
    done = subprocess.run(
        [*command, profile, "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert "CONSOLE" not in done.stderr
    seen = json.loads(re.search(r"SEEN(.*)END</pre>", done.stdout).group(1))
    assert seen["errors"] == []
    assert seen["inner"] == 360
    assert seen["width"] <= 360
    assert seen["unfolded"] <= 360
    assert seen["loaded"] == 0
    assert seen["byStep"] == seen["hoursAfter"] > 4
    assert seen["hours"] == seen["byStepAfter"] == 0
    assert seen["smallest"] >= 9
    assert {"curves", "findings", "equal-hours", "settings", "sentinels", "samples", "checks", "record"} == set(
        seen["sections"]
    )


def test_the_command_prints_where_the_page_is(grpo, tmp_path, capsys):
    out = tmp_path / "two words.html"
    main(["report", str(grpo("a run")), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(UserError, match=r"cannot write .* give another file with --out"):
        main(["report", str(tmp_path / "a run"), "--out", str(tmp_path)])


def test_a_report_needs_no_torch(grpo, tmp_path):
    folder = grpo()
    code = f"""import sys; from lit_rlhf.__main__ import main
main(["report", {str(folder)!r}, "--out", {str(tmp_path / "page.html")!r}])
print(sorted({{"torch", "lightning", "matplotlib"}} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lit_rlhf_callbacks.finding_hook import FindingHook

FINDING = json.dumps({"kind": "entropy_collapse", "title": "Entropie"})


def test_a_command_gets_the_finding_on_its_standard_input(tmp_path: Path) -> None:
    copy = f"import sys; open({str(tmp_path / 'got')!r}, 'w').write(sys.stdin.read())"
    FindingHook(f'{sys.executable} -c "{copy}"').send(FINDING).join(60)
    assert json.loads((tmp_path / "got").read_text())["kind"] == "entropy_collapse"


def test_an_address_gets_it_as_a_post() -> None:
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.handle_request, daemon=True).start()
    FindingHook(f"http://127.0.0.1:{server.server_port}/findings").send(FINDING).join(60)
    server.server_close()
    assert got == [FINDING.encode()]


@pytest.mark.parametrize("target", ["no-such-command-here", f"{sys.executable} -c 'raise SystemExit(1)'"])
def test_a_failure_is_one_warning_line(target: str) -> None:
    hook = FindingHook(target)
    with pytest.warns(UserWarning, match="was not told") as warned:
        hook.send(FINDING).join(60)
    assert "\n" not in str(warned[0].message)

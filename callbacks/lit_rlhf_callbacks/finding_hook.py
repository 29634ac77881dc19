"""Telling somebody outside of a finding: a command, or a web address."""

import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from threading import Thread

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf_callbacks.errors import UserError

SECONDS = 10.0


class FindingHook:
    """Hand each finding, as JSON, to a command's standard input or to a web address, without holding up training.

    Args:
        target: A command with its arguments, or an address that begins with ``https://`` (``http://`` on this machine).

    Raises:
        UserError: If the target is neither.
    """

    def __init__(self, target: str) -> None:
        if not target.strip():
            raise UserError("RunDoctor hook: it is empty; give a command or an https:// address, or leave it out")
        scheme = target.partition("://")[0] if "://" in target.split()[0] else ""
        is_local = target.startswith(("http://localhost", "http://127.0.0.1"))
        if scheme and scheme != "https" and not is_local:
            raise UserError(f"RunDoctor hook: {scheme}:// is not supported; give an https:// address or a command")
        self.target = target
        self._deliver: Callable[[bytes], None] = self._post if scheme else self._run

    def send(self, finding: str) -> Thread:
        """Start the delivery in a thread that nobody waits for; a failure is one warning.

        Args:
            finding: JSON.
        """
        thread = Thread(target=self._try, args=(finding.encode(),), daemon=True, name="RunDoctor hook")
        thread.start()
        return thread

    def _try(self, finding: bytes) -> None:
        try:
            self._deliver(finding)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            rank_zero_warn(f"RunDoctor hook: {self.target} was not told: {' '.join(str(error).split())}")

    def _run(self, finding: bytes) -> None:
        command = shlex.split(self.target)
        subprocess.run(command, input=finding, timeout=SECONDS, check=True, capture_output=True)

    def _post(self, finding: bytes) -> None:
        request = urllib.request.Request(self.target, finding, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass

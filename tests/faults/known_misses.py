"""What the doctor does not name, and why: read by the tests, printed in docs/validation.md."""

MISSED: dict[str, str] = {}
MISSED_THINNED: dict[str, str] = {}

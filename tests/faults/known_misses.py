"""What the doctor does not name, or calls by a wrong name, and why: read by the tests, told in docs/validation.md."""

MISSED = {
    "reporting-too_many_epochs-grpo-2": "one phase of eight passes kills the policy: that is seen, and not why",
}

MISSED_SPARSE: dict[str, str] = {}

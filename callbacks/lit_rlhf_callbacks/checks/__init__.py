"""Exact checks: what can be known of a run without statistics, each a function that any project can call.

Each takes tensors or callables and returns a `CheckResult`; a missing input is ``unknown``, never a guess.
`schedule.ExactChecks` calls them at the start, on the first three updates and every hundred after.
"""

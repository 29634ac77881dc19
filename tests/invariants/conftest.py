"""Fixtures around `short_runs`: what must hold for every algorithm is asked of real trainings."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the ranks' processes import the two by name, as the tests do

import short_runs
from two_ranks import TwoRanks

ONLINE = [
    "Reinforce",
    "ReinforcePlusPlus",
    "RLOO",
    "GRPO",
    "DrGRPO",
    "DAPO",
    "GSPO",
    "CISPO",
    "SAPO",
    "MaxRL",
]


@pytest.fixture(params=ONLINE)
def algorithm(request):
    """Every online algorithm's class name."""
    return request.param


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A tiny random model's folder."""
    return short_runs.write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Settings of `PromptData`: 6 prompts, so an epoch is a phase of 4 and one of 2."""
    return short_runs.write_prompts(tmp_path_factory.mktemp("data") / "prompts.jsonl", ["yes"] * 6)


@pytest.fixture(scope="session")
def run(model, data):
    """`short_runs.train` with defaults for model and data; the same settings are trained once per session."""
    return _remembering(short_runs.train, model, data)


@pytest.fixture(scope="session")
def ranks():
    """A function that runs another on both of two ranks, see `TwoRanks`."""
    ranks = TwoRanks()
    yield ranks
    ranks.stop()


@pytest.fixture(scope="session")
def run_on_two_ranks(ranks, model, data):
    """`run` on two ranks; returns what each has seen."""
    return _remembering(lambda *args, **kwargs: ranks(short_runs.train_one_of_two, *args, **kwargs), model, data)


def _remembering(train, model, data):
    runs = {}

    def run(name, **settings):
        settings = {"model": model, "data": data, **settings}
        key = repr((name, sorted(settings.items())))
        if key not in runs:
            runs[key] = train(name, **settings)
        return runs[key]

    return run

"""What every test gets: one thread, no network, and a process left as it was found."""

import os
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "disabled"

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _process_left_as_it_was():
    """A run leaves its seed in the environment (Lightning) and its own way of printing warnings."""
    environment, print_warning = dict(os.environ), warnings.formatwarning
    yield
    os.environ.clear()
    os.environ.update(environment)
    warnings.formatwarning = print_warning


@pytest.fixture
def in_tmp_dir(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path

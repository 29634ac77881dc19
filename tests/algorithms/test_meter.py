"""Window metrics: each mean over its own denominator, and nothing where there was nothing."""

import torch

from lit_rlhf.algorithms.meter import WindowMeter


def test_a_mean_is_over_elements_not_over_micro_batches():
    meter = WindowMeter()
    meter.add_masked("entropy", torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    meter.add_masked("entropy", torch.tensor([6.0]), torch.tensor([True]))
    assert meter.compute() == {"entropy": 3.0}


def test_totals_extremes_and_empty_metrics():
    meter = WindowMeter()
    meter.add_total("loss", 1.0)
    meter.add_total("loss", 2.5)
    meter.add_max("longest", torch.tensor([3, 7]))
    meter.add_max("nothing", torch.tensor([]))
    meter.add_min("shortest", torch.tensor([3, 7]))
    meter.add_min("shortest", torch.tensor([2.5]))
    meter.add_min("no_minimum", torch.tensor([]))
    meter.add_mean("nothing_either", 0.0, 0.0)
    assert meter.compute() == {"loss": 3.5, "longest": 7.0, "shortest": 2.5}


def test_computing_starts_anew():
    meter = WindowMeter()
    meter.add_total("loss", 1.0)
    meter.compute()
    assert meter.compute() == {}

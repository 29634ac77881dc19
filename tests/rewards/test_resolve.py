"""What may stand in a config, and the one line that answers what may not."""

import functools
import sys

import pytest

from lit_rlhf.rewards.form import Format
from lit_rlhf.rewards.resolve import resolve
from lit_rlhf_callbacks.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder, import path and loaded modules put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def line_of(specs):
    """The message of the error, which must be one line."""
    with pytest.raises(UserError) as caught:
        resolve(specs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def by_length(completions, bonus=0.0, **kwargs):
    return [len(text) + bonus for text in completions]


class Scaled:
    def __init__(self, factor, shift=0.0):
        self.factor, self.shift = factor, shift

    def __call__(self, completions, answer):
        return [self.factor * len(text) + self.shift for text in completions]


def test_built_in_by_name_and_with_settings():
    exact, form = resolve(["exact_match", {"function": "format", "weight": 0.5, "tags": ["plan"]}])
    assert (exact.name, exact.weight, exact.required) == ("exact_match", 1.0, ("completions", "answer"))
    assert (form.name, form.weight) == ("format", 0.5)
    assert form.function(completions=["<plan>x</plan>"]) == [1.0]


def test_function_in_a_file_of_the_current_folder(folder):
    (folder / "my_first_rewards.py").write_text("def good(completions, answer, **kwargs):\n    return [0.0]\n")
    (reward,) = resolve(["my_first_rewards.good"])
    assert (reward.name, reward.takes_all) == ("good", True)
    assert reward.file == str(folder / "my_first_rewards.py")


@pytest.mark.parametrize("path", ["graders/mine.py:half", "./graders/mine.py:half", "graders/mine.py.half"])
def test_a_function_may_be_named_by_its_file(folder, path):
    (folder / "graders").mkdir()
    (folder / "graders" / "mine.py").write_text("def half(completions):\n    return [0.5 for _ in completions]\n")
    (reward,) = resolve([path])
    assert reward.function(completions=["a"]) == [0.5]
    assert reward.name == "half"


def test_a_file_elsewhere_is_refused(folder):
    assert "must be in this folder" in line_of(["../mine.py:half"])


def test_file_may_import_its_neighbour_when_it_is_called(folder):
    (folder / "my_neighbour.py").write_text("SCORE = 3.0\n")
    (folder / "my_second_rewards.py").write_text(
        "def good(completions):\n    import my_neighbour\n    return [my_neighbour.SCORE]\n"
    )
    (reward,) = resolve(["my_second_rewards.good"])
    assert reward.function(completions=["x"]) == [3.0]


def test_anything_importable():
    (reward,) = resolve([{"function": "lit_rlhf.rewards.form.Length", "target": 3}])
    assert (reward.name, reward.required) == ("Length", ("completions", "completion_ids"))


def test_callables_and_their_names():
    specs = [lambda completions: [0.0], by_length, functools.partial(by_length, bonus=1.0), Format(), Scaled(2.0)]
    names = [reward.name for reward in resolve([specs[0], specs[1], *specs[3:]])]
    assert names == ["reward_0", "by_length", "format", "Scaled"]
    assert resolve([specs[2]])[0].name == "by_length"


def test_settings_of_a_function_are_bound_and_no_column_replaces_them():
    (reward,) = resolve([{"function": by_length, "bonus": 2.0}])
    offered = {"completions": ["ab"], "bonus": [50.0]}
    assert reward.function(**reward.arguments(offered)) == [4.0]


def test_settings_of_a_class_do_not_hide_a_column_of_the_same_name():
    class Named:
        def __init__(self, answer):
            self.answer = answer

        def __call__(self, completions, answer):
            return [float(a == self.answer) for a in answer]

    (reward,) = resolve([{"function": Named, "answer": "x"}])
    assert reward.function(**reward.arguments({"completions": ["a"], "answer": ["x"]})) == [1.0]


def test_two_of_a_kind_with_names():
    specs = [{"function": "length", "target": 3, "name": "short"}, {"function": "length", "target": 9}]
    assert [reward.name for reward in resolve(specs)] == ["short", "length"]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("exact_mach", ["'exact_mach'", "did you mean 'exact_match'?", "overlong", "file.function"]),
        ({"function": "length", "taget": 3}, ["'length'", "no setting 'taget'", "did you mean 'target'", "band, unit"]),
        ({"function": "length"}, ["'length'", "needs the setting 'target'", "target, band, unit"]),
        ({"function": "length", "target": 0}, ["'length'", "target must be ≥ 1"]),
        ({"function": "length", "target": "ten"}, ["'length'", "{target: 'ten'}", "TypeError"]),
        ({"function": "length", "target": 5, "unit": "words"}, ["'length'", "tokens or characters", "'words'"]),
        ({"function": "format", "tags": ["a", "a"]}, ["'format'", "different names"]),
        ({"function": "format", "tags": "think"}, ["'format'", "not 'think'"]),
        ({"function": "format", "tags": ["<think>"]}, ["'format'", "without brackets"]),
        ({"function": "exact_match", "tag": "<answer>"}, ["'exact_match'", "without brackets"]),
        ({"function": "overlong", "max_tokens": 5, "cache": 9}, ["'overlong'", "cache between 0 and max_tokens"]),
        ({"function": "repetition", "ngram": 0}, ["'repetition'", "ngram must be ≥ 1"]),
        ({"function": "exact_match", "weigth": 2.0}, ["'exact_match'", "did you mean 'weight'?"]),
        ({"function": "exact_match", "weight": "2"}, ["'exact_match'", "weight must be a number, not '2'"]),
        ({"function": "exact_match", "weight": float("nan")}, ["'exact_match'", "weight"]),
        ({"weight": 2.0}, ["reward 0", "{'weight': 2.0} is neither a name nor a function"]),
        (3, ["reward 0", "3 is neither"]),
        ({"function": by_length, "bonsu": 1.0}, ["'by_length'", "no setting 'bonsu'", "did you mean 'bonus'?"]),
        ({"function": by_length, "completions": []}, ["'by_length'", "no setting 'completions'"]),
        ({"function": Scaled}, ["'Scaled'", "needs the setting 'factor'", "factor, shift"]),
        ("no_such_file.good", ["'no_such_file.good'", "there is no file no_such_file.py in"]),
        ("json.lodas", ["'json.lodas'", "no 'lodas' in the module 'json'", "did you mean 'loads'"]),
        ("json.__name__", ["'json.__name__'", "of type str, not a function"]),
        (max, ["'max'", "no readable signature"]),
    ],
)
def test_bad_specs_get_one_line(spec, parts):
    message = line_of([spec])
    for part in parts:
        assert part in message


def test_no_functions_at_all():
    assert "no reward function is given; built in: exact_match" in line_of([])


def test_duplicate_names():
    message = line_of(["exact_match", {"function": "exact_match", "tag": "answer"}])
    assert "'exact_match' is given 2 times" in message
    assert "name: other_name" in message


def test_async_functions_are_refused():
    async def judge(completions):
        return [0.0]

    class Judge:
        async def __call__(self, completions):
            return [0.0]

    assert "'judge' is async" in line_of([judge])
    assert "'judge' is async" in line_of([functools.partial(judge)])
    assert "'Judge' is async" in line_of([Judge()])
    assert "'Judge' is async" in line_of([Judge])


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("x = 1\ndef good(completions)\n    pass\n", ["my_bad_rewards.py:2", "SyntaxError"]),
        ("x = 1\nimport no_such_package\n", ["my_bad_rewards.py:2", "ModuleNotFoundError", "no_such_package"]),
        ("def f():\n    raise ValueError('two\\nlines')\nf()\n", ["my_bad_rewards.py:2", "ValueError: two lines"]),
        ("import sys\nsys.exit(3)\n", ["my_bad_rewards.py:2", "SystemExit: 3"]),
        ("def goood(completions): return [0.0]\n", ["my_bad_rewards.py", "did you mean 'goood'", "it has: goood"]),
    ],
)
def test_mistakes_in_the_users_file_are_placed(folder, source, parts):
    (folder / "my_bad_rewards.py").write_text(source)
    message = line_of(["my_bad_rewards.good"])
    for part in ["'my_bad_rewards.good'", *parts]:
        assert part in message


def test_mistakes_in_a_package_of_the_current_folder_are_placed(folder):
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text("raise KeyError('x')\n")
    (folder / "my_package" / "rewards.py").write_text("def good(completions): return [0.0]\n")
    message = line_of(["my_package.rewards.good"])
    assert "failed at my_package/__init__.py:1: KeyError: 'x'" in message


def test_a_file_hidden_by_a_loaded_module_is_named(folder):
    (folder / "json.py").write_text("def good(completions): return [0.0]\n")
    message = line_of(["json.good"])
    assert "json.py in this folder is hidden by the module 'json'" in message

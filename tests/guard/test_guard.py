"""What a guard does between a received model and a trained one: refuse, charge, clip, noise, and never tell on data."""

import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from privfed.engines.nodes.errors import NodeRefused, NodesError, PolicyRefused, StateError
from privfed.engines.nodes.policy import Policy
from privfed.guard import Guard
from privfed.privacy import LedgerError, PlanError, PrivacyPlan
from tests.guard.conftest import GENEROUS, PLAN, flat, model


def never():
    pytest.fail("data were touched")


def uploads(guard):
    return len(guard._charging.ledger().entries)


def test_importing_privfed_loads_neither_torch_nor_the_guard():
    code = "import sys, privfed; assert not {'torch', 'privfed.guard'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("length", "left"), [(0.5, 0.5), (50.0, 1.0)])
def test_one_norm_bounds_all_parameters_together(tmp_path, length, left):
    direction = flat(model(1.0)) / 3
    after = {
        "linear.weight": 2 + length * direction[:6].view(3, 2).float(),
        "linear.bias": torch.full((3,), 2 + length / 3),
    }
    released = Guard(tmp_path, GENEROUS, rounds=1).answer(model(2.0), lambda: after)
    assert (flat(released) - 2).norm().item() == pytest.approx(left, abs=1e-3)
    assert torch.cosine_similarity(flat(released) - 2, direction, dim=0).item() == pytest.approx(1, abs=1e-4)


def test_laplace_noise_bounds_the_sum_of_absolute_changes(tmp_path):
    released = Guard(tmp_path, "local-laplace:clip_norm=1,epsilon0=1e5", rounds=1).answer(model(), lambda: model(7.0))
    assert flat(released).abs().sum().item() == pytest.approx(1, abs=1e-2)


def test_noise_is_exact_fresh_and_as_wide_as_the_plan_says(tmp_path):
    guard, wide = Guard(tmp_path, PLAN, rounds=2), {"w": torch.zeros(20_000)}
    first, second = (guard.answer(wide, lambda: wide)["w"].double() for _ in range(2))
    assert first.std().item() == pytest.approx(4, rel=0.03)
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.04
    # A whole number of steps of 2^-18, the power of two below 4 * 2^-20, wherever float32 still shows them.
    steps = first * 2**18
    assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_parameters_come_back_in_their_own_type_and_shape(tmp_path, dtype):
    state = {
        "w": torch.ones(2, 3, dtype=dtype),
        "scale": torch.tensor(2.0, dtype=dtype),
        "none": torch.empty(0, dtype=dtype),
    }
    released = Guard(tmp_path, GENEROUS, rounds=1).answer(state, lambda: {k: v + 0.125 for k, v in state.items()})
    assert {k: (v.dtype, v.shape) for k, v in released.items()} == {k: (v.dtype, v.shape) for k, v in state.items()}
    assert released["w"][0, 0].item() == pytest.approx(1.125, abs=1e-2)


def test_arrays_are_taken_like_tensors(tmp_path):
    state = {"w": np.ones(3, np.float32)}
    state["w"].setflags(write=False)
    assert Guard(tmp_path, GENEROUS, rounds=1).answer(state, lambda: state)["w"].dtype == torch.float32


BATCH_NORM = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).state_dict()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (BATCH_NORM, "'1.running_mean' is a statistic of batch norm"),
        ({"renamed": torch.tensor(3)}, "'renamed' has type torch.int64"),
        ({"flags": torch.ones(2, dtype=torch.bool)}, "torch.bool"),
        ({"z": torch.ones(2, dtype=torch.complex64)}, "torch.complex64"),
        ({"w": torch.tensor([1.0, float("nan")])}, "'w' holds NaN or infinity"),
        ({"w": torch.tensor([1.0, float("inf")])}, "'w' holds NaN or infinity"),
        ({"w": "text"}, "'w' is no tensor"),
        ({"w": None}, "'w' is no tensor"),
        ({"w": np.array(["text"])}, "'w' is no tensor"),
        ({"w": torch.eye(2).to_sparse()}, "'w' is no dense tensor"),
        ({"w": torch.empty(0)}, "holds no parameters"),
        ({}, "holds no parameters"),
        ({"w": torch.zeros(1).expand(2**20)}, "accepts 1048576"),
    ],
)
def test_what_cannot_be_bounded_is_refused_before_data_and_free(tmp_path, state, sentence):
    (tmp_path / "node.toml").write_text(
        '[policy]\nmax_message_mib = 1\nmechanisms = ["local_gaussian"]\nmin_own_users = 1'
    )
    guard = Guard(tmp_path, PLAN, rounds=1)
    with pytest.raises(NodeRefused, match=sentence):
        guard.answer(state, never)
    assert uploads(guard) == 0


def logged(caplog, folder, plan, trainings, rounds=3):
    """What a guard logs at INFO while it answers."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="privfed.guard"):
        guard = Guard(folder, plan, rounds=rounds)
        for train in trainings:
            guard.answer(model(), train)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


def test_an_admitted_upload_says_how_far_the_budget_is_spent(tmp_path, caplog):
    plan = "local-gaussian:clip_norm=1,epsilon=2"
    lines = logged(caplog, tmp_path, plan, [model] * 2)
    assert [line.partition(";")[0] for line in lines] == ["upload 1 of 3", "upload 2 of 3"]
    assert re.fullmatch(r"upload 2 of 3; epsilon so far 1\.\d+ of 2 at delta 1e-05, over all plans", lines[1])
    spent = float(re.search(r"so far ([\d.]+)", lines[1])[1])
    assert spent == pytest.approx(Guard(tmp_path, plan, rounds=3).guarantee().epsilon, rel=1e-3)


def test_the_line_that_the_guide_shows_is_logged(tmp_path, caplog):
    page = Path(__file__).resolve().parents[2] / "docs" / "guides" / "deploying.md"
    plan, rounds = "local-gaussian:clip_norm=1,epsilon=8", 20
    assert f'"{plan}", rounds={rounds})' in page.read_text("utf-8")
    assert f"\n{logged(caplog, tmp_path, plan, [model] * 3, rounds)[-1]}\n" in page.read_text("utf-8")


def test_the_budget_in_the_log_is_that_of_all_plans(tmp_path, caplog):
    (tmp_path / "node.toml").write_text(
        '[policy]\nmax_epsilon = 9\nmax_delta = 1e-4\nmechanisms = ["local_gaussian"]\nmin_own_users = 1'
    )
    (first,) = logged(caplog, tmp_path, "local-gaussian:clip_norm=1,noise_multiplier=4", [model])
    (second,) = logged(caplog, tmp_path, "local-gaussian:clip_norm=1,noise_multiplier=5", [model])
    one, both = (float(re.search(r"so far ([\d.]+) of 9", line)[1]) for line in (first, second))
    assert 1.5 * one < both < 2 * one
    assert second.endswith("at delta 2e-05, over all plans")


def test_the_log_of_the_budget_does_not_depend_on_data(tmp_path, caplog):
    plan = "local-gaussian:clip_norm=1,epsilon=2"
    trainings = ([model] * 3, [lambda: model(50.0), fails, lambda: model(float("nan"))])
    lines = [logged(caplog, tmp_path / str(at), plan, these) for at, these in enumerate(trainings)]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 3


def fails():
    raise ValueError("a person's name")


@pytest.mark.parametrize(
    "train",
    [
        fails,
        sys.exit,
        lambda: model(float("nan")),
        lambda: model(3e38) | {"linear.bias": torch.full((3,), float("inf"))},
        lambda: {"linear.weight": torch.ones(3, 2)},
        lambda: model(1.0) | {"more": torch.ones(1)},
        lambda: model(1.0) | {"linear.bias": torch.ones(4)},
        lambda: model(1.0) | {"linear.bias": torch.ones(3, dtype=torch.float64)},
        lambda: model(1.0) | {"linear.bias": "text"},
        lambda: None,
        lambda: 7,
    ],
)
def test_whatever_training_does_an_upload_leaves_and_says_nothing_of_it(tmp_path, train, caplog):
    guard = Guard(tmp_path, GENEROUS, rounds=1)
    released = guard.answer(model(2.0), train)
    assert {name: values.shape for name, values in released.items()} == {"linear.weight": (3, 2), "linear.bias": (3,)}
    assert (flat(released) - 2).abs().max().item() < 1e-3
    assert uploads(guard) == 1
    assert "zeros are sent" in caplog.text
    assert "person" not in caplog.text


@pytest.mark.parametrize("size", [1e-30, 1e10, 3e38])
def test_a_huge_update_is_no_longer_than_the_clip(tmp_path, size):
    released = Guard(tmp_path, GENEROUS, rounds=1).answer(model(), lambda: model(size))
    assert flat(released).norm().item() < 1.001


def test_training_cannot_change_what_its_update_is_measured_against(tmp_path):
    state = model()

    def in_place():
        for values in state.values():
            values.add_(1)
        return state

    released = Guard(tmp_path, GENEROUS, rounds=1).answer(state, in_place)
    assert flat(released).norm().item() == pytest.approx(1, abs=1e-3)


def test_an_upload_is_recorded_before_data_are_touched(tmp_path):
    guard, seen = Guard(tmp_path, PLAN, rounds=3), []

    def train():
        # Another process, which reads nothing but the folder.
        seen.append(uploads(Guard(tmp_path, PLAN, rounds=3)))
        return model()

    for _ in range(2):
        guard.answer(model(), train)
    assert seen == [1, 2]


def test_epsilon_of_all_runs_together_is_kept_and_the_ledger_says_so(tmp_path):
    plan = "local-gaussian:clip_norm=1,epsilon=3"
    for run in range(4):  # every run is a process of its own
        guard = Guard(tmp_path, plan, rounds=4)
        guard.answer(model(), lambda: model(1.0))
        assert uploads(guard) == run + 1
    with pytest.raises(PolicyRefused, match="this would be upload 5 of this node under its plan"):
        Guard(tmp_path, plan, rounds=4).answer(model(), never)
    claim = guard.guarantee()
    assert 2.97 < claim.epsilon <= 3
    assert claim.rounds_counted == 4
    assert any("counts on no cohort and no noise but its own" in text for text in claim.assumptions)
    assert any("numbers of examples" in text for text in claim.statements)


def test_the_owner_s_policy_stops_earlier_than_the_plan(tmp_path):
    own = 'mechanisms = ["local_gaussian"]\nmin_own_users = 1'
    for key, value, sentence in [("max_epsilon", 1.5, "max_epsilon = 1.5"), ("max_rounds", 2, "allows 2")]:
        folder = tmp_path / key
        folder.mkdir()
        (folder / "node.toml").write_text(f"[policy]\n{own}\n{key} = {value}\n")
        if key == "max_rounds":
            with pytest.raises(PolicyRefused, match=sentence):
                Guard(folder, "local-gaussian:clip_norm=1,epsilon=3", rounds=4)
            continue
        guard = Guard(folder, "local-gaussian:clip_norm=1,epsilon=3", rounds=4)
        guard.answer(model(), model)
        with pytest.raises(PolicyRefused, match=sentence):
            guard.answer(model(), never)
        assert guard.guarantee().epsilon <= value


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({}, "allows secure_sum, distributed_gaussian"),
        ({"min_users": 100}, "asks for 100"),
        ({"min_own_users": 5}, "1 of this node's users"),
        ({"max_clip_norm": 0.5}, "allows at most 0.5"),
        ({"min_noise_multiplier": 5.0}, "asks for at least 5"),
        ({"methods": ["fedmf"]}, "allows fedmf"),
        ({"max_delta": 1e-6}, "allows 1e-06"),
    ],
)
def test_no_plan_weakens_the_owner_s_policy(tmp_path, policy, sentence):
    known = {"mechanisms": ["local_gaussian"], "min_own_users": 1} if policy else {}
    lines = [f"{key} = {json.dumps(value)}" for key, value in (known | policy).items()]
    (tmp_path / "node.toml").write_text("\n".join(["[policy]", *lines]))
    with pytest.raises(PolicyRefused, match=sentence):
        Guard(tmp_path, PLAN, rounds=1)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("none", "no local one"),
        ("secure-sum:clip_norm=1", "masks of 32-bit seeds"),
        ("central-gaussian:clip_norm=1,noise_multiplier=1", "nobody else to add noise"),
        ("distributed-gaussian:clip_norm=1,noise_multiplier=1,n_min_honest=3", "nobody else to add noise"),
        ("local-gaussian:epsilon=8", "clip_norm is open"),
        ("local-gaussian:clip_norm=1,noise_multiplier=1,sampling.kind=poisson,sampling.rate=0.5", "leave it out"),
    ],
)
def test_plans_that_rest_on_others_are_refused(tmp_path, plan, sentence):
    with pytest.raises(PlanError, match=sentence):
        Guard(tmp_path, plan, rounds=1)


def test_a_plan_that_bounds_nothing_of_an_upload_is_refused(tmp_path):
    from privfed.privacy.mechanisms.registry import Mechanism

    refused = []
    for kind, member in Mechanism.members.items():
        for example in member.examples().values():
            plan = PrivacyPlan(mechanism=example)
            try:
                Guard(tmp_path / kind, plan, rounds=1)
            except (PlanError, PolicyRefused):
                refused.append(kind)
    assert set(Mechanism.members) - set(refused) == {"local_gaussian", "local_laplace"}


def test_a_folder_that_moves_with_an_app_is_refused():
    with pytest.raises(NodesError, match="give an absolute one"):
        Guard("guard", PLAN, rounds=1)


def test_another_plan_adds_to_what_earlier_ones_cost(tmp_path):
    (tmp_path / "node.toml").write_text(
        '[policy]\nmechanisms = ["local_gaussian"]\nmin_own_users = 1\nmax_epsilon = 3.0\nmax_delta = 2e-5'
    )
    first = Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=1", rounds=2)
    for _ in range(2):
        first.answer(model(), model)
    second = Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=2.5", rounds=2)
    second.answer(model(), model)
    spent = [run.epsilon for run in second._charging.costs()]
    assert sum(spent) <= 3
    assert any("Under earlier plans of this node 2 more uploads" in text for text in second.guarantee().statements)
    with pytest.raises(PolicyRefused, match="has room for 1"):
        second.answer(model(), never)
    third = Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=0.1", rounds=2)
    with pytest.raises(PolicyRefused):  # three deltas of 1e-5
        third.answer(model(), never)


def test_without_an_owner_s_policy_a_second_plan_does_not_begin_anew(tmp_path):
    Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=1", rounds=1).answer(model(), model)
    with pytest.raises(PolicyRefused, match="add up to more"):
        Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=1.01", rounds=1).answer(model(), never)


def truncated(folder):
    (path,) = folder.glob("ledger-*.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def edited(folder):
    (path,) = folder.glob("ledger-*.jsonl")
    path.write_text(path.read_text().replace('"cohort_id":1', '"cohort_id":7'))


def removed(folder):
    (path,) = folder.glob("ledger-*.jsonl")
    path.unlink()


def without_book(folder):
    (folder / "state" / "book.json").unlink()


@pytest.mark.parametrize("damage", [truncated, edited, removed, without_book])
def test_a_folder_that_was_rolled_back_or_damaged_answers_nothing(tmp_path, damage):
    guard = Guard(tmp_path, PLAN, rounds=5)
    for _ in range(2):
        guard.answer(model(), model)
    damage(tmp_path)
    for one in (guard, Guard(tmp_path, PLAN, rounds=5)):
        with pytest.raises((LedgerError, StateError)):
            one.answer(model(), never)


def test_a_line_that_a_dying_process_began_is_dropped_and_its_upload_never_left(tmp_path):
    guard = Guard(tmp_path, PLAN, rounds=3)
    guard.answer(model(), model)
    (path,) = tmp_path.glob("ledger-*.jsonl")
    with path.open("a") as file:
        file.write('{"previous":"')
    guard.answer(model(), model)
    assert uploads(guard) == 2


@pytest.mark.parametrize("kept", [0, 40, -1])
def test_a_process_that_died_as_it_began_its_ledger_shuts_no_guard_out(tmp_path, kept):
    """The file was made, and its first line was not written, or not whole."""
    whole = tmp_path / "whole"
    uploads(Guard(whole, PLAN, rounds=3))
    (header,) = whole.glob("ledger-*.jsonl")
    folder = tmp_path / "guard"
    folder.mkdir()
    (folder / header.name).write_bytes(header.read_bytes()[:kept])
    guard = Guard(folder, PLAN, rounds=3)
    guard.answer(model(), model)
    assert uploads(guard) == 1


def test_messages_at_the_same_time_never_go_past_the_budget(tmp_path):
    guards = [Guard(tmp_path, PLAN, rounds=6) for _ in range(2)]  # two processes' worth of memory, one folder
    answered, refused = [], []

    def answer(number):
        try:
            answered.append(guards[number % 2].answer(model(), lambda: model(1.0)))
        except PolicyRefused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answered), len(refused), uploads(guards[0])) == (6, 6, 6)
    assert len({flat(state).numpy().tobytes() for state in answered}) == 6


def test_processes_at_the_same_time_never_go_past_the_budget(tmp_path):
    code = (
        "import sys, torch; from privfed.guard import Guard; from privfed.engines.nodes.errors import PolicyRefused\n"
        "g = Guard(sys.argv[1], 'local-gaussian:clip_norm=1,noise_multiplier=4', rounds=5); n = 0\n"
        "for _ in range(4):\n"
        "    try: g.answer({'w': torch.zeros(2)}, lambda: {'w': torch.ones(2)}); n += 1\n"
        "    except PolicyRefused: pass\n"
        "print(n)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert sum(int(one.communicate()[0]) for one in running) == 5


def test_the_room_that_is_found_is_what_the_ledger_s_accountant_allows(tmp_path):
    guard = Guard(tmp_path, PLAN, rounds=1000)
    guard.policy = guard.policy.model_copy(update={"max_epsilon": 4.0})
    guard._charging._policy = guard.policy
    for _ in range(1000):
        try:
            guard._charging.record(2)
        except PolicyRefused:
            break
    fits = uploads(guard)
    assert guard.guarantee().epsilon <= 4
    trial = guard._charging.ledger().copy()
    last = trial.entries[-1]
    trial.record(
        cohort_id=fits, round=fits, step=last.step, index=0, schema=summary_of(2), participants=np.zeros(1, np.int64)
    )
    assert trial.guarantee(seeded=False).epsilon > 4


def summary_of(coordinates):
    from privfed.guard.terms import summary

    return summary(coordinates)


def test_a_policy_without_an_epsilon_still_gets_one(tmp_path):
    (tmp_path / "node.toml").write_text('[policy]\nmechanisms = ["local_gaussian"]\nmin_own_users = 1')
    assert Guard(tmp_path, "local-gaussian:clip_norm=1,epsilon=2", rounds=3).policy.max_epsilon == 2
    assert isinstance(Guard(tmp_path, PLAN, rounds=3).policy, Policy)

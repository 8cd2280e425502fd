"""The pieces of the autoencoder: names, initial values, ragged rows, gates and what a step does to a layer."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.feddae.vae_personal import LocalOptimiser, PersonalAffine, PersonalGate, PersonalInput
from privfed.methods.shared.multinomial import multinomial_gradient
from privfed.methods.shared.vae import Architecture, Posterior
from privfed.methods.shared.vae_inputs import Inputs, OwnRows
from privfed.methods.shared.vae_layers import LocalAffine, step_coefficients

quick = settings(max_examples=50, deadline=None)


def rows_of(counts, n_items, seed=0):
    generator = torch.Generator().manual_seed(seed)
    items = [torch.randperm(n_items, generator=generator)[:m].sort().values for m in counts]
    counts = torch.tensor(counts)
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    return OwnRows(owner, torch.cat([*items, torch.empty(0, dtype=torch.int64)]), counts, n_items)


def test_every_block_with_a_row_per_item_has_items_on_axis_0():
    for hidden in ((), (7,), (7, 5)):
        a = Architecture(20, 3, hidden)
        shapes = {name: tuple(v.shape) for name, v in a.initial(torch.rand(a.size), "torch").items()}
        with_items = {name: shape for name, shape in shapes.items() if 20 in shape}
        last = f"decoder.{len(hidden)}"
        assert with_items.keys() == {"encoder.0.weight", f"{last}.weight", f"{last}.bias"}
        assert all(shape[0] == 20 for shape in with_items.values())
        assert sum(torch.Size(shape).numel() for shape in shapes.values()) == a.size
        assert a.encoder == (20, *hidden, 6)
        assert a.decoder == (3, *hidden[::-1], 20)


def test_torch_start_is_bounded_by_the_inputs_and_xavier_by_both_sides_with_zero_biases():
    a = Architecture(50, 4, (9,))
    unit = torch.rand(a.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, xavier = a.initial(unit, "torch"), a.initial(unit, "xavier")
    for name, (fan_in, fan_out) in a.layers().items():
        for part in ("weight", "bias"):
            largest = float(plain[f"{name}.{part}"].abs().max())
            assert 0.5 / fan_in**0.5 < largest <= fan_in**-0.5
        bound = (6 / (fan_in + fan_out)) ** 0.5
        assert 0.9 * bound < float(xavier[f"{name}.weight"].abs().max()) <= bound + 1e-6
        assert not xavier[f"{name}.bias"].any()


@quick
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 10**6))
def test_ragged_rows_times_a_table_are_dense_rows_times_it(counts, steps, seed):
    rows = rows_of(counts, 9, seed)
    generator = torch.Generator().manual_seed(seed)
    keep = torch.rand(steps, len(rows.owner), generator=generator) < 0.6
    inputs = rows.inputs(keep, 0.4, torch.float64)
    table = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    dense = inputs.dense()
    torch.testing.assert_close(inputs.times(table, rows.items), (dense @ table).transpose(0, 1))
    for c, m in enumerate(counts):
        assert ((dense[c] == 0) | (dense[c] - 1 / (m**0.5 * 0.6 or 1)).abs().lt(1e-12)).all()
    assert rows.place.tolist() == [i for m in counts for i in range(m)]


def test_without_dropout_a_row_has_length_one():
    rows = rows_of([4, 0, 1], 6)
    dense = rows.inputs(torch.ones(1, 5, dtype=torch.bool), 0.0, torch.float32).dense()
    torch.testing.assert_close(dense.norm(dim=2)[:, 0], torch.tensor([1.0, 0.0, 1.0]))


def test_coefficients_count_how_often_a_gradient_is_in_the_weights():
    assert step_coefficients(3, 1.0).tolist() == [[0, 0, 0], [-1, 0, 0], [-1, -1, 0], [-1, -1, -1]]
    accumulated = step_coefficients(3, 0.5, accumulate=True)
    assert (accumulated / -0.5).tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_layer_passes_inputs_and_gradients_through_each_clients_own_weight(rows):
    clients, steps, fan_in, fan_out = 3, 4, 5, 2
    generator = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    w, b, c = draw(fan_in, fan_out), draw(fan_out), step_coefficients(steps, 0.1, dtype=torch.float64)
    layer = LocalAffine(w, b, c)
    own_w, own_b = w.repeat(clients, 1, 1), b.repeat(clients, 1)
    for e in range(steps):
        x, d = draw(clients, rows, fan_in), draw(clients, rows, fan_out)
        torch.testing.assert_close(layer.forward(e, x), x @ own_w + own_b.unsqueeze(1))
        torch.testing.assert_close(layer.backward(e, d), d @ own_w.transpose(1, 2))
        own_w -= 0.1 * x.transpose(1, 2) @ d
        own_b -= 0.1 * d.sum(1)
    change = layer.change()
    torch.testing.assert_close(change.left.transpose(1, 2) @ change.right, own_w - w)
    torch.testing.assert_close(change.bias, own_b - b)


def test_the_loss_gradient_sums_to_nothing_and_is_negative_on_own_items_only():
    rows = rows_of([3, 0, 5], 8)
    logits = torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = multinomial_gradient(logits, rows, torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64))
    torch.testing.assert_close(found.sum(1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    mine = torch.zeros(3, 8, dtype=torch.bool)
    mine[rows.owner, rows.items] = True
    assert (found < 0).equal(mine)
    assert not found[1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_items", [5, 16, 50])
def test_the_loss_gradient_is_that_of_autograd(n_items, dtype):
    """For catalogues of less than, exactly and more than one vector, and logits whose exponentials overflow."""
    rows = rows_of([3, 0, 5], n_items)
    scale = torch.tensor([1.0, 1.0, 0.5], dtype=dtype)
    logits = 40 * torch.randn(3, n_items, dtype=dtype, generator=torch.Generator().manual_seed(4)) + 500
    wanted = logits.clone().requires_grad_()
    losses = -torch.log_softmax(wanted, 1)[rows.owner, rows.items] * scale[rows.owner]
    losses.sum().backward()
    torch.testing.assert_close(multinomial_gradient(logits, rows, scale), wanted.grad)


def test_logits_of_fewer_items_are_refused_before_anything_is_written_behind_them():
    rows, around = rows_of([3, 0, 5], 8), torch.zeros(3, 7)
    with pytest.raises(IndexError, match="drop the message"):
        multinomial_gradient(around, rows, torch.ones(3))
    assert not around.any()


def test_logits_that_are_no_numbers_spoil_only_their_own_row():
    rows = rows_of([3, 0, 5], 40)
    logits = torch.zeros(3, 40)
    logits[0, 2], logits[2, 39] = torch.nan, torch.inf
    found = multinomial_gradient(logits, rows, torch.ones(3))
    assert found.isnan().all(1).tolist() == [True, False, True]


def test_a_mixed_posterior_follows_its_weights():
    out = torch.tensor([[[1.0, 0.0], [3.0, 0.0]]])
    assert Posterior(out, torch.tensor([[1.0, 0.0]])).mean.item() == 1
    half = Posterior(out, torch.tensor([[0.5, 0.5]]))
    assert half.mean.item() == 2
    assert half.sample(torch.ones(1, 1)).item() == pytest.approx(2 + 0.5**0.5)


@pytest.mark.parametrize("adam", [False, True])
def test_a_gate_of_two_numbers_moves_as_a_layer_over_the_catalogue(adam):
    """For a client with m items, and one with none."""
    counts, n_items, lr = torch.tensor([4, 0]), 9, 0.05
    logits = torch.zeros(2, 2, dtype=torch.float64)
    gate = PersonalGate(logits, counts, LocalOptimiser(lr, adam=adam))
    whole = [torch.zeros(n_items + 1, 2, dtype=torch.float64, requires_grad=True) for _ in counts]
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimisers = [kind([psi], lr=lr) for psi in whole]
    for e in range(5):
        pull = torch.tensor([[1.0, -0.5], [-2.0, 0.3]], dtype=torch.float64) + e
        pull[:, 1] *= e - 2
        for c, psi in enumerate(whole):
            optimisers[c].zero_grad()
            r = torch.cat([torch.arange(n_items) < counts[c], torch.tensor([True])]).double()
            (torch.softmax(r @ psi, 0) * pull[c]).sum().backward()
            optimisers[c].step()
        gate.backward(e, pull)
    r = torch.stack([torch.cat([torch.arange(n_items) < m, torch.tensor([True])]).double() for m in counts])
    wanted = torch.stack([r[c] @ psi.detach() for c, psi in enumerate(whole)])
    torch.testing.assert_close(logits, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_of_each_clients_own_move_as_torch_moves_one_client(adam, dtype):
    """A first layer of the own items' rows and a dense one behind it, five steps, one client with no item."""
    steps, rows, made = 5, rows_of([3, 0, 5], 8), torch.Generator().manual_seed(4)
    values = torch.randn(steps, 8, generator=made, dtype=dtype)
    values[2, 3] = 0
    own, weight = torch.randn(8, 19, generator=made, dtype=dtype), torch.randn(3, 19, 6, generator=made, dtype=dtype)
    bias, deep = torch.zeros(3, 19, dtype=dtype), torch.zeros(3, 6, dtype=dtype)
    pulls = torch.randn(steps, 3, 2, 6, generator=made, dtype=dtype)
    starts = [(own[rows.owner == c].clone(), weight[c].clone()) for c in range(3)]
    optimiser = LocalOptimiser(0.01, adam=adam)
    first = PersonalInput(own, bias, Inputs(rows, values), optimiser)
    dense = PersonalAffine("encoder.1", weight, deep, optimiser)
    for e in range(steps):
        dense.forward(e, first.forward(e))
        first.backward(e, dense.backward(e, pulls[e, :, 1:]))
    for c, start in enumerate(starts):
        tensors = [t.requires_grad_() for t in (*start, torch.zeros(19, dtype=dtype), torch.zeros(6, dtype=dtype))]
        kind = (torch.optim.Adam if adam else torch.optim.SGD)(tensors, lr=0.01)
        for e in range(steps):
            kind.zero_grad()
            x = values[e, rows.owner == c]
            ((x @ tensors[0] + tensors[2]) @ tensors[1] + tensors[3]).dot(pulls[e, c, 1]).backward()
            kind.step()
        for found, wanted in zip((own[rows.owner == c], weight[c], bias[c], deep[c]), tensors, strict=True):
            torch.testing.assert_close(found, wanted.detach())


def test_a_gradient_of_another_width_is_refused_before_anything_moves():
    rows = torch.ones(4, 6)
    optimiser, owner = LocalOptimiser(0.1, adam=True), torch.tensor([0, 0, 1, 1])
    for width in (5, 7):
        with pytest.raises(IndexError, match="drop the message"):
            optimiser.product_step_("own", rows, torch.ones(4), torch.ones(2, width), owner, 0)
    assert (rows == 1).all()


def test_a_layer_of_ones_own_moves_alike_in_any_company():
    """To the bit: what a device trains holds nothing of who trained beside it."""
    made = torch.Generator().manual_seed(5)
    weight, x, pull = (torch.randn(7, *sides, generator=made) for sides in ((9, 21), (1, 9), (1, 21)))
    together = weight.clone()
    for chosen in (slice(0, 7), slice(3, 4), slice(2, 5)):
        alone = weight[chosen].clone()
        layer = PersonalAffine("own", alone, torch.zeros(len(alone), 21), LocalOptimiser(0.1, adam=True))
        for e in range(4):
            layer.forward(e, x[chosen])
            layer.backward(e, pull[chosen] / (e + 1))
        together = alone if len(alone) == 7 else together
        assert torch.equal(alone, together[chosen])

"""The benchmark: cases in turn, honest quartiles and ratios, every convolution replayed, all parts run when small."""
import math

import pandas as pd
import pytest
import rbvae_nb.bench as module
import torch
import torch.nn.functional as F
from rbvae_nb.baselines import BetaTCVAE
from rbvae_nb.bench import (PARTS, Case, Place, as_pythae, bench, child, convolutions, interleaved, operations,
                            squared_error, timed, training_run)
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.vae import VAE

A, B = Case('a'), Case('b', 'bfloat16')
CPU = Place()


def test_cases_take_turns():
    seen = []
    def measure(name: str):
        def call() -> float:
            seen.append(name)
            return float(len(seen))
        return call
    samples = interleaved({A: measure('a'), B: measure('b')}, repeats=3, warmup=2)
    assert ''.join(seen) == 'ab' * 5
    assert samples == {A: [5, 7, 9], B: [6, 8, 10]}, 'the first values are the warm-up'


def test_time_is_taken_around_the_call_with_the_device_at_rest():
    seen = []
    clock = iter([10., 10.25])
    def now() -> float:
        seen.append('clock')
        return next(clock)
    assert timed(lambda: seen.append('call'), lambda: seen.append('finish'), now)() == 250
    assert seen == ['finish', 'clock', 'call', 'finish', 'clock']


def test_rows_have_medians_quartiles_and_ratios():
    first, second = CPU.rows('group', {A: [1., 2, 3, 4, 5], B: [30., 10, 20, 50, 40]})
    assert [first[key] for key in ('median', 'lower', 'upper', 'ratio', 'unit')] == [3, 2, 4, 1, 'ms']
    assert [second[key] for key in ('median', 'lower', 'upper', 'ratio', 'dtype')] == [30, 20, 40, 10, 'bfloat16']
    assert first['reference'] == second['reference'] == 'a, float32'


def test_rows_of_rates_keep_the_order_of_quartiles():
    _, row = CPU.rows('group', {A: [1., 1, 1], B: [1., 2, 4]}, 'images/s', lambda ms: 1000 / ms)
    assert [row[key] for key in ('median', 'lower', 'upper', 'ratio')] == [500, 375, 750, .5]


def test_operations_of_a_convolution():
    """Two for each weight and place: 5 × 3 × 3 × 3 weights at 2 × 8 × 8 places."""
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3)
    everything, of_convolutions = operations(lambda: F.conv2d(x, weight, padding=1) @ torch.ones(8, 4))
    assert of_convolutions * 1e9 == pytest.approx(2 * 135 * 128)
    assert (everything - of_convolutions) * 1e9 == pytest.approx(2 * 2 * 5 * 8 * 8 * 4)


@pytest.mark.parametrize('method', [VAE, SRbVAE])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_replay_does_what_the_step_does(method, dtype):
    """The same number of operations, in the arithmetic and the order in memory of the step."""
    step = training_run(method, CPU, dtype).advance
    calls = convolutions(step)
    assert sum(operations(call)[1] for call in calls) == pytest.approx(operations(step)[1])
    assert {call.func.overloadpacket.__name__ for call in calls} == {'convolution', 'convolution_backward'}
    tensors = [a for call in calls for a in call.args if isinstance(a, torch.Tensor)]
    assert {a.dtype for a in tensors} == {getattr(torch, dtype)}
    assert any(a.is_contiguous(memory_format=torch.channels_last) and not a.is_contiguous() for a in tensors)


@pytest.mark.parametrize('method', [VAE, BetaTCVAE])
def test_pythae_computes_the_same_likelihood_over_the_same_networks(method):
    pytest.importorskip('pythae')
    like_theirs = type(method.__name__, (method,), dict(reconstruction=staticmethod(squared_error)))
    ours, _ = like_theirs.preset('small')
    theirs, x = as_pythae(ours), torch.rand(8, 3, 32, 32) * 2 - 1
    torch.manual_seed(0)
    loss, terms = ours.losses(x, x)
    torch.manual_seed(0)
    output = theirs({'data': x})
    assert output.recon_loss.item() == pytest.approx(terms['reconstruction'].item(), rel=1e-4)
    if method is VAE: assert output.loss.item() == pytest.approx(loss['model'].item(), rel=1e-4)


def test_without_pythae_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(module, 'find_spec', lambda name: None)
    assert not len(bench(tmp_path / 'bench.csv', 'b', device='cpu'))
    assert capsys.readouterr().out == 'pythae is not installed, or not for cpu: no rows beside it\n'


def test_a_child_times_its_code_only():
    assert .05 <= child('time.sleep(.05)', 'time.sleep(.5)') < .5


def test_a_child_tells_its_own_memory():
    mine = bytearray(300_000_000)
    mine[::4096] = b'x' * len(mine[::4096])
    assert 64 < child('held = b"x" * 64_000_000', answer=1) < 250


def test_a_child_that_fails_says_why():
    with pytest.raises(RuntimeError, match='no_such_name'): child('no_such_name')


@pytest.fixture(scope='module')
def quick(tmp_path_factory):
    """All parts at their smallest (children answer at once), what was written, and the number of threads before."""
    out, before = tmp_path_factory.mktemp('bench') / 'deep/bench.csv', torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, 'child', lambda *code, answer=0: 1.5)
        rows = bench(out, device='cpu', threads=1, quick=True)
    return rows, pd.read_csv(out, keep_default_na=False), before


def test_quick_has_all_rows(quick):
    rows, _, _ = quick
    assert list(rows)[:3] == ['group', 'name', 'device']
    groups = {'step of srbvae', 'step of srbvae, float32', 'codes of srbvae', 'import',
              'peak memory', 'long training of srbvae', 'sets of digits', 'step by pixels', 'step by codes'}
    assert groups <= set(rows.group)
    if module.find_spec('pythae'):
        assert {f'{m}, {how}' for m in ('vae', 'beta_tcvae') for how in ('same loop', 'as used')} <= set(rows.group)
    assert {'ms', 's', 'MB', 'GFLOP', 'GFLOP/s', 'images/s'} >= set(rows.unit) >= {'ms', 's', 'GFLOP/s', 'images/s'}
    assert list(rows[rows.group == 'step of srbvae'].name[:3]) == ['literal', 'plain', 'fast']


def test_quick_has_finite_positive_values(quick):
    rows, _, _ = quick
    for row in rows.itertuples():
        assert 0 < row.lower <= row.median <= row.upper < math.inf, row
        assert 0 < row.ratio < math.inf and row.threads == 1, row


def test_the_file_has_the_rows(quick):
    rows, written, _ = quick
    pd.testing.assert_frame_equal(written, rows, rtol=1e-4)


def test_the_number_of_threads_is_put_back(quick):
    assert torch.get_num_threads() == quick[2]


@pytest.mark.parametrize('wrong', [dict(parts=''), dict(parts='ax'), dict(repeats=0), dict(steps=0), dict(threads=0),
                                   dict(device='abacus')])
def test_what_cannot_be_measured_is_refused(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'PARTS', {letter: pytest.fail for letter in PARTS})
    with pytest.raises(ValueError, match='expected'): bench(tmp_path / 'bench.csv', **wrong)
    assert not list(tmp_path.iterdir())


def test_every_part_has_a_letter():
    assert ''.join(PARTS) == 'abcdef'

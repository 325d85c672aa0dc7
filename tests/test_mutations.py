"""Mistakes are noticed, planted one at a time: in exported functions of the mathematics lessons by a cell that fails,
in the modules by a test of the normal run that fails.

Half an hour, so only on request: `pytest -m mutations -n 2`.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mistakes import MISTAKES as PLANTED
from mistakes import UNNOTICED, WATCH

TESTS = Path(__file__).resolve().parent
NBS, PACKAGE = TESTS.parent / 'nbs', TESTS.parent / 'rbvae_nb'
RUN = '''
import json, sys
import matplotlib; matplotlib.use('agg')
for number, source in enumerate(json.load(sys.stdin)):
    try: exec(compile(source, f'cell {number}', 'exec'), globals())
    except Exception as error: print(f'noticed in cell {number}: {type(error).__name__}'); break
else: print('not noticed')
'''
# notebook: function: (what stands there, the mistake)
MISTAKES = {
    '03_divergences': {
        'sample_gaussian': [
            ('mean + (logvar / 2).exp() * noise', 'mean - (logvar / 2).exp() * noise'),  # sign
            ('mean + (logvar / 2).exp() * noise', 'mean + logvar.exp() * noise'),  # missing ½
            ('mean + (logvar / 2).exp() * noise', 'logvar + (mean / 2).exp() * noise'),  # swapped
            ('mean + (logvar / 2).exp() * noise', 'mean + (-logvar / 2).exp() * noise'),
            ('torch.randn_like(mean) if noise is None else noise', 'torch.randn_like(mean)'),
            ('torch.randn_like(mean) if noise is None', 'torch.rand_like(mean) if noise is None'),
        ],
        'gaussian_log_density': [
            ('-.5 * (math.log', '.5 * (math.log'),
            ('-.5 * (math.log', '-(math.log'),
            ('+ logvar + (value', '- logvar + (value'),
            ('(-logvar).exp()', 'logvar.exp()'),
            ('logvar + (value - mean).square() * (-logvar).exp()', 'mean + (value - logvar).square() * (-mean).exp()'),
            ('(2 * math.pi)', '(math.pi)'),
            ('(value - mean).square()', '(value + mean).square()'),
            ('.sum(1)', '.mean(1)'),
        ],
        'gaussian_kl': [
            ('.5 * ((logvar', '-.5 * ((logvar'),
            ('.5 * ((logvar', '((logvar'),
            ('- 1 + p_logvar - logvar', '+ 1 + p_logvar - logvar'),
            ('p_logvar - logvar)', 'logvar - p_logvar)'),
            ('(-p_logvar).exp()', 'p_logvar.exp()'),
            ('mean - p_mean', 'mean + p_mean'),
            ('.sum(1)', '.mean(1)'),
            ('(logvar.exp() +', '((logvar / 2).exp() +'),
            ('((logvar.exp() + (mean - p_mean).square()) * (-p_logvar).exp() - 1 + p_logvar - logvar)',
             '((p_logvar.exp() + (mean - p_mean).square()) * (-logvar).exp() - 1 + logvar - p_logvar)'),  # KL(p‖q)
        ],
        'batch_entropy': [
            ('.5 * (2', '-.5 * (2'),
            ('.5 * (2', '(2'),
            ('.log().sum()', '.log().mean()'),
            ('2 * math.pi * math.e', '2 * math.pi'),
            ('codes.var(0)', 'codes.std(0)'),
            ('codes.var(0)', 'codes.var(1)'),
            ('codes.var(0)', 'codes.var(0, correction=0)'),
            ('+ 1e-4)', '+ 0)'),
        ],
        'laplace_log_density': [
            ('return -((x', 'return ((x'),
            ('.abs() / scale', '.abs() * scale'),
            ('math.log(2 * scale)', 'math.log(scale)'),
            ('+ math.log(2 * scale)', '- math.log(2 * scale)'),
            ('(x - mean)', '(x + mean)'),
            ('.flatten(1).sum(1)', '.flatten(1).mean(1)'),
        ],
        'logistic_loss': [
            ('F.softplus(-d_q).mean() + F.softplus(d_p).mean()',
             'F.softplus(d_q).mean() + F.softplus(-d_p).mean()'),  # labels
            ('F.softplus(-d_q)', 'F.softplus(-d_p)'),
            ('+ F.softplus(d_p)', '- F.softplus(d_p)'),
            ('F.softplus(-d_q).mean() + F.softplus(d_p).mean()', 'F.softplus(-d_q).sum() + F.softplus(d_p).sum()'),
            ('F.softplus(-d_q).mean() + F.softplus(d_p).mean()',
             '(F.softplus(-d_q).mean() + F.softplus(d_p).mean()) / 2'),
        ],
        'symmetric_kl': [
            ('d_q.mean() - d_p.mean()', 'd_p.mean() - d_q.mean()'),
            ('d_q.mean() - d_p.mean()', 'd_q.mean() + d_p.mean()'),
            ('d_q.mean() - d_p.mean()', 'd_q.sum() - d_p.sum()'),
            ('d_q.mean() - d_p.mean()', '(d_q.mean() - d_p.mean()) / 2'),
        ],
    },
    '03a_derivation': {
        'chain': [
            ('var.diag()', 'var.sqrt().diag()'),
            ('+ var.diag()', '- var.diag()'),
            ('torch.cat([mean, layer(mean)])', 'torch.cat([mean, layer(0 * mean)])'),
            ('down @ layer.weight.T', 'down @ down.T'),
            ('layer.weight @ cov', '-layer.weight @ cov'),
        ],
        'LinearGaussian': [
            ('self.noise ** 2).log()', 'self.noise).log()'),
            ('torch.cat([z, e], 1)', 'torch.cat([e, z], 1)'),
            ('.split([self.dim_z, self.dim_e], 1)', '.split([self.dim_e, self.dim_z], 1)[::-1]'),
            ('self.logvar.expand_as(mean)', '(-self.logvar).expand_as(mean)'),
        ],
        'joints': [
            ('self.encoder, self.logvar.exp())', 'self.encoder, (self.logvar / 2).exp())'),
            ('torch.full_like(data_u.mean, self.noise ** 2)', 'torch.full_like(data_u.mean, self.noise)'),
            ('torch.cat([z + 1, e + 1])', 'torch.cat([z + 1, e + 2])'),
            ('torch.cat([z, self.e_ref])', 'torch.cat([z, -self.e_ref])'),
            ('torch.cat([z + 1, e]).diag()', 'torch.cat([z + 1, e + 1]).diag()'),
            ('.split([self.dim_z, self.dim_e, self.dim_x])', '.split([self.dim_x, self.dim_z, self.dim_e])'),
        ],
        'divergences': [
            ('forward = (kl_divergence(q_u, p_u) + kl_divergence(q_r, p_r)) / 2',
             'forward = kl_divergence(q_u, p_u) + kl_divergence(q_r, p_r)'),  # missing ½
            ('reverse = (kl_divergence(p_u, q_u) + kl_divergence(p_r, q_r)) / 2',
             'reverse = (kl_divergence(p_u, q_u) - kl_divergence(p_r, q_r)) / 2'),
            ('forward = (kl_divergence(q_u, p_u)', 'forward = (kl_divergence(p_u, q_u)'),
            ('reverse = (kl_divergence(p_u, q_u)', 'reverse = (kl_divergence(q_u, p_u)'),
            ('return forward, reverse', 'return reverse, forward'),
        ],
        'pick': [
            ('cov[i][:, i]', 'cov[i][:, i.sort().values]'),
            ('mean[i]', 'mean[i.sort().values]'),
        ],
        'corners': [
            ('[-1., 1.]', '[0., 1.]'),
            ('[-1., 1.]', '[-2., 2.]'),
            ('[-1., 1.]', '[1., 1.]'),
        ],
        'toy_sets': [
            ('1 + noise ** 2', '1 + noise'),
            ('MultivariateNormal(0 * mean', 'MultivariateNormal(mean'),
            ('[s, noise ** 2]', '[s, noise]'),
            ('[0., reference]', '[0., -reference]'),
        ],
        'truth': [
            ('noise ** 2 / (1 + noise ** 2)', 'noise ** 2'),
            ('[0, 1]]) / (1 + noise ** 2)', '[0, 1]])'),
            ('(model.e_ref, reference)', '(model.e_ref, 0)'),
            ('[[1., 0, 0], [0, 0, 1]]', '[[1., 0, 0], [0, 1, 0]]'),
        ],
    },
}
CASES = [(notebook, function, *mistake) for notebook, functions in MISTAKES.items()
         for function, found in functions.items() for mistake in found]


def code_cells(notebook: str) -> list[str]:
    """The sources of a notebook's code cells."""
    cells = json.loads((NBS / f'{notebook}.ipynb').read_text(encoding='utf-8'))['cells']
    return [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']


def defines(source: str, function: str) -> bool:
    """Whether an exported cell defines the function or class."""
    return source.startswith('#| export') and any(f'\n{kind} {function}(' in source for kind in ('def', 'class'))


def run(cells: list[str]) -> str:
    """Run the cells in order up to the first that fails; what RUN prints last."""
    env = os.environ | {'PYTHONPATH': str(NBS.parent), 'OMP_NUM_THREADS': '1', 'PYTHONIOENCODING': 'utf-8'}
    done = subprocess.run([sys.executable, '-c', RUN], input=json.dumps(cells), cwd=NBS, env=env, encoding='utf-8',
                          capture_output=True)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr


def test_mistakes_can_be_planted():
    """Every mistake changes the one cell it is meant for (this runs always: the list must keep up with the lessons)."""
    for notebook, function, right, wrong in CASES:
        cell, = (c for c in code_cells(notebook) if defines(c, function))
        assert right in cell and right != wrong, f'{function}: {right!r} is not in its cell'
    assert MISTAKES['03_divergences'].keys() >= {'sample_gaussian', 'gaussian_kl', 'logistic_loss', 'symmetric_kl'}
    assert MISTAKES['03a_derivation'].keys() >= {'LinearGaussian', 'divergences'}


@pytest.mark.mutations
@pytest.mark.parametrize('notebook', MISTAKES)
def test_lesson_passes_as_it_is(notebook: str):
    assert run(code_cells(notebook)) == 'not noticed'


@pytest.mark.mutations
@pytest.mark.parametrize('notebook, function, right, wrong', CASES,
                         ids=[f'{f}-{i}' for i, (_, f, *_) in enumerate(CASES)])
def test_mistake_is_noticed(notebook: str, function: str, right: str, wrong: str):
    cells = [c.replace(right, wrong) if defines(c, function) else c for c in code_cells(notebook)]
    assert run(cells).startswith('noticed'), f'{function}: {wrong!r} in place of {right!r} went unnoticed'


# In the modules
def with_reason(module: str, right: str, wrong: str):
    """A mistake as a parameter; that it goes unnoticed is expected where UNNOTICED says why."""
    why = UNNOTICED.get((module, wrong))
    return pytest.param(module, right, wrong, marks=[pytest.mark.xfail(reason=why, strict=True)] if why else [])


def copied(folder: Path) -> Path:
    """A copy of the package."""
    return Path(shutil.copytree(PACKAGE, folder / 'rbvae_nb', ignore=shutil.ignore_patterns('__pycache__')))


def watched(module: str, folder: Path) -> subprocess.CompletedProcess:
    """The tests that look at a module, up to the first that fails, with the package in a folder."""
    env = {key: value for key, value in os.environ.items() if not key.startswith('PYTEST_')}
    env |= {'PYTHONPATH': str(folder), 'OMP_NUM_THREADS': '1', 'PYTHONIOENCODING': 'utf-8'}
    options = '-x -q --no-header --tb=line -p no:cacheprovider -p no:xdist'.split()
    files = [str(TESTS / f'test_{name}.py') for name in WATCH[module]]
    return subprocess.run([sys.executable, '-B', '-m', 'pytest', *options, *files], cwd=folder, env=env,
                          capture_output=True, encoding='utf-8')


def test_mistakes_can_be_planted_in_modules():
    """What stands there does so once (this runs always: the list must keep up with the modules)."""
    for module, mistakes in PLANTED.items():
        source = (PACKAGE / f'{module}.py').read_text(encoding='utf-8')
        for right, wrong in mistakes: assert source.count(right) == 1 and right != wrong, f'{module}: {right!r}'
        assert len(set(mistakes)) == len(mistakes)
        assert all((TESTS / f'test_{name}.py').is_file() for name in WATCH[module])


def test_nearly_all_mistakes_are_expected_to_be_noticed():
    every = [(module, wrong) for module, mistakes in PLANTED.items() for _, wrong in mistakes]
    assert len(every) >= 60 and len(UNNOTICED) <= len(every) / 10 and UNNOTICED.keys() <= set(every)


@pytest.mark.mutations
@pytest.mark.parametrize('module', PLANTED)
def test_tests_pass_as_it_is(module: str, tmp_path: Path):
    copied(tmp_path)
    run = watched(module, tmp_path)
    assert run.returncode == pytest.ExitCode.OK, run.stdout + run.stderr


@pytest.mark.mutations
@pytest.mark.parametrize('module, right, wrong', [with_reason(module, *mistake) for module, mistakes in PLANTED.items()
                                                  for mistake in mistakes])
def test_mistake_in_a_module_is_noticed(module: str, right: str, wrong: str, tmp_path: Path):
    """A test fails; where the module can no longer be imported, pytest ends with another code."""
    file = copied(tmp_path) / f'{module}.py'
    file.write_text(file.read_text(encoding='utf-8').replace(right, wrong), encoding='utf-8')
    run = watched(module, tmp_path)
    assert run.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, f'{module}: {wrong!r} in place of {right!r} went unnoticed'

"""What each way of computing a training step is worth: `python nbs/measure/ladder.py` (about 8 minutes on two cores).

sRb-VAE, small preset, 32 + 32 images, past its ramp. Each row adds one thing to those above it. All are timed in turn,
five steps each, in one process, so that other work on the machine meets them alike. Writes ladder.csv beside this file:
medians and quartiles in milliseconds per step, with one thread and with two. The last row is no rung: it has
torch.compile in place of the fused forms.
"""
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from rbvae_nb import networks
from rbvae_nb.bench import Case, as_listed, interleaved, timed
from rbvae_nb.speed import literal_step
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import gradient_step, has_bfloat16, pick_device

FUSED = networks.fused
STEPS = 5  # in one turn: memory and caches are then those of a training


@contextmanager
def only(*forms: str) -> Iterator[None]:
    """Of the fused forms of neighbours, these alone."""
    def fused(first: torch.nn.Module, second: torch.nn.Module) -> Callable | None:
        found = FUSED(first, second)
        name = 'up_conv' if isinstance(second, torch.nn.Conv2d) else getattr(found, '__name__', '')
        return found if name in forms else None
    networks.fused = fused
    try: yield
    finally: networks.fused = FUSED


class Way:
    """One way of taking the training step, with a model and optimizers of its own."""
    def __init__(self, literal: bool = False, half: bool = False, channels_last: bool = False,
                 forms: tuple[str, ...] = (), one_pass: bool = False, together: bool = False,
                 compiled: bool = False):
        self.model, recipe = SRbVAE.preset('small', seed=0)
        if channels_last: self.model.to(memory_format=torch.channels_last)
        if not forms: as_listed(self.model)
        self.model.train().fast = one_pass
        if compiled:
            for network in self.model.children(): network.compile(dynamic=False)
        self.literal, self.forms = literal, forms
        options = dict(fused=True) if together else {}
        self.optimizers = {who: torch.optim.Adam(weights, recipe['lr'] / 100, recipe['betas'], **options)
                           for who, weights in self.model.players().items()}
        self.precision = torch.autocast('cpu', torch.bfloat16, enabled=half)
        self.batch = torch.rand(2, 32, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def step(self):
        """One step."""
        with only(*self.forms):
            if self.literal: literal_step(self.model, self.optimizers, *self.batch)
            else: gradient_step(self.model, self.optimizers, *self.batch, precision=self.precision)

    def __call__(self):
        """Some steps, as in a training one after the other."""
        for _ in range(STEPS): self.step()


def ladder() -> dict[str, Way]:
    """The rungs, from the literal transcription up."""
    half, norm, tower = has_bfloat16(pick_device('cpu')), ('leaky_norm',), ('leaky_pool', 'leaky_flatten')
    rest = dict(half=half, channels_last=True, together=True)
    rungs = {
        'literal, float32': Way(literal=True),
        'batches put together': Way(together=True),
        'channels last': Way(channels_last=True, together=True),
        'bfloat16': Way(**rest),
        'LeakyReLU + pixel norm': Way(**rest, forms=norm),
        'LeakyReLU + pooling': Way(**rest, forms=norm + tower),
        'up-sampling + convolution': Way(**rest, forms=norm + tower + ('up_conv',)),
        'one backward pass': Way(**rest, forms=norm + tower + ('up_conv',), one_pass=True),
    }
    if shutil.which('g++'): rungs['(torch.compile instead)'] = Way(**rest, one_pass=True, compiled=True)
    return rungs


def measure(threads: int, repeats: int) -> pd.DataFrame:
    """Medians and quartiles of all rungs."""
    torch.set_num_threads(threads)
    torch.compiler.reset()
    samples = interleaved({Case(name): timed(way) for name, way in ladder().items()}, repeats, warmup=2)
    table = pd.DataFrame({case.name: values for case, values in samples.items()}) / STEPS
    found = table.quantile([.5, .25, .75]).T.set_axis(['median', 'lower', 'upper'], axis=1)
    ratios = (table.iloc[:, [0]].to_numpy() / table).median()  # of the literal step just before
    return found.assign(threads=threads, **{'times as fast': ratios}).rename_axis('what').reset_index()


if __name__ == '__main__':
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    found = pd.concat([measure(threads, repeats) for threads in (1, 2)])
    found.round(3).to_csv(Path(__file__).with_name('ladder.csv'), index=False)
    print(found.round(2).to_string(index=False))

"""Make the weights inside the package: `OMP_NUM_THREADS=1 python nbs/measure/weights.py MNIST_FOLDER rbvae srbvae`.

They are those at the end of each method's long run, long.py's with seed 0; they take one and two hours, and go on
where they stand. Each is saved as float16 in rbvae_nb/weights/NAME.safetensors, and described in NAME.md beside it: a
model card. For that, and for nothing else, the test split is looked at.
"""
import sys
from pathlib import Path

import torch
from long import AT, long_run
from path import measured

from rbvae_nb import __version__
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment
from rbvae_nb.files import write_whole
from rbvae_nb.methods import Method, load
from rbvae_nb.probing import probe
from rbvae_nb.table import markdown
from rbvae_nb.training import has_bfloat16, pick_device

WEIGHTS = Path(__file__).resolve().parents[2] / 'rbvae_nb/weights'
MNIST = 'MNIST, by Yann LeCun and Corinna Cortes, under CC BY-SA 3.0 (https://creativecommons.org/licenses/by-sa/3.0/)'
LIMITS = """\
* The model knows 32×32 digits with the styles of `digit_styles`. Of other images its codes say nothing.
* It is one training run: another seed gives other numbers, and codes whose dimensions mean something else.
* A linear probe tells what can be read from a code by a line, not that nothing else is in it.
* The file holds what encodes and decodes: no discriminators, and nothing of the optimiser."""


def card(
    name: str,  # of the weight file
    summary: str,  # one sentence
    facts: dict[str, str],  # such as {'Data': ...}
    sections: dict[str, str],  # heading: Markdown
) -> str:
    """A model card in Markdown."""
    listed = '\n'.join(f'* **{what}**: {fact}' for what, fact in facts.items())
    parts = [f'# {name}.safetensors', summary, listed, *(f'## {title}\n\n{text}' for title, text in sections.items())]
    return '\n\n'.join(parts) + '\n'


def made_by(command: str) -> str:
    """How a weight file was made."""
    device = pick_device('auto')
    dtype = 'bfloat16' if has_bfloat16(device) else 'float32'
    threads = f'`OMP_NUM_THREADS={torch.get_num_threads()}`; other numbers of threads add up in another order'
    versions = f'rbvae-nb {__version__} and torch {torch.__version__}'
    return f'`{command}`, in {dtype} ({device.type}, {threads}), with {versions}'


def training_facts(model: Method) -> dict[str, str]:
    """Data, steps, seed, hyperparameters, licence and command of a training."""
    pretraining = ', but the pretraining and the ramp end at steps 1,000 and 1,300' if model.name == 'srbvae' else ''
    return {
        'Data': '`digit_styles(source=MNIST_FOLDER)`: 60,000 styled and 30,000 plain digits, of the training digits '
                'of MNIST',
        'Steps': f'{AT[-1]:,} of 32 + 32 images; the learning rate stays for {AT[-2]:,} and falls to zero after that',
        'Seed': '0, of initial weights, batches and samples',
        'Hyperparameters': f"preset `small` of `{type(model).__name__}`{pretraining}",
        'Licence of the data': MNIST,
        'Made by': made_by(f'python nbs/measure/weights.py MNIST_FOLDER {model.name}'),
    }


def probed(model: Method, data: Experiment) -> str:
    """What linear probes read from the codes of a model, as Markdown."""
    _, test = data.splits()
    table = probe(model, data).rename_axis('code').map('{:.3f}'.format)
    return (f'Linear probes on {len(test):,} styled test digits that no training has seen: {test.target} and its '
            f'factors by mean absolute error, {test.identity} by accuracy. ± is half a 95 % interval.\n\n'
            f'{markdown(table)}')


DRAWS = {  # a name in `measured`: what it says
    'reconstruction, identity': 'share of images that keep their digit when they are rebuilt',
    'swap, identity': 'share that keep it when **e** comes from another image',
    'swap, target': 'mean absolute error of the style that such a swap asks for',
    'tint': 'distance of a channel from grey, of images drawn with $\\mathbf e^r$ (-1 is black, 1 white)',
    'told from real': 'share that a small network tells from real reference digits, and the reverse',
    'sure samples': 'share of images drawn from the prior of which the classifier is 90 % sure',
}


def pictures(model: Method, data: Experiment) -> str:
    """What its pictures are like, as Markdown."""
    numbers = measured(model, data, *data.splits())
    head = ('What the attribute classifier sees on test digits (the first three), on training images, and on samples; '
            'by chance the small network would be right in half of the cases.\n\n')
    return head + '\n'.join(f'* {what}: {numbers[name]:.{4 if name == "tint" else 3}f}' for name, what in DRAWS.items())


def make(name: str, folder: str) -> None:
    """Train one method, save it, and describe what was saved."""
    data, path = digit_styles(), WEIGHTS / f'{name}.safetensors'
    run, how = long_run(folder, 0, [] if name == 'srbvae' else [f'method={name}'])
    if how['stopped']: raise SystemExit(how['stopped'])
    load(run / f'model-{AT[-1]:06}.safetensors').save(path, dtype='float16')
    model = load(path)
    sections = {
        'What the codes know': probed(model, data),
        'What it draws': pictures(model, data),
        'Intended use': f"Lessons, demonstrations and tests of rbvae-nb: `load('{name}')` reads it, `rbvae demo "
                        '--pretrained` shows it.',
        'Limits': LIMITS,
    }
    summary = f'{model.title} for 32×32 digits: encoders and generator, as float16.'
    write_whole(path.with_suffix('.md'), card(name, summary, training_facts(model), sections).encode())


if __name__ == '__main__':
    folder, *names = sys.argv[1:]
    for name in names or ('rbvae', 'srbvae'): make(name, folder)

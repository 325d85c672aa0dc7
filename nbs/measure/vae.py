"""Make the VAE of the lessons: `OMP_NUM_THREADS=1 python nbs/measure/vae.py`, about two minutes.

The small preset with seed 0, on the digits inside the package: what 06_training trains, and 07_probing would. Saved as
float16 in rbvae_nb/weights/vae.safetensors, with a model card beside it.
"""
from weights import LIMITS, MNIST, WEIGHTS, card, made_by, probed

from rbvae_nb.digits import digit_styles
from rbvae_nb.files import write_whole
from rbvae_nb.methods import load
from rbvae_nb.training import train
from rbvae_nb.vae import VAE


def main() -> None:
    """Train, save, describe."""
    data, path = digit_styles(), WEIGHTS / 'vae.safetensors'
    model, recipe = VAE.preset('small', seed=0)
    train(model, data.sets, **recipe)
    model.save(path, dtype='float16')
    facts = {
        'Data': f'`digit_styles()`: {len(data.sets.unlabelled):,} styled digits, of the training digits of MNIST',
        'Steps': f'{recipe["steps"]:,} of {recipe["batch_size"]} images',
        'Seed': '0, of initial weights, batches and samples',
        'Hyperparameters': 'preset `small` of `VAE`',
        'Licence of the data': MNIST,
        'Made by': made_by('python nbs/measure/vae.py'),
    }
    sections = {
        'What the code knows': probed(load(path), data),
        'Intended use': 'Lessons of rbvae-nb, so that nobody has to wait for this training: `load(\'vae\')`.',
        'Limits': LIMITS,
    }
    text = card('vae', 'The VAE for 32×32 digits: encoder and generator, as float16.', facts, sections)
    write_whole(path.with_suffix('.md'), text.encode())


if __name__ == '__main__': main()

"""Sets of images from map-style data sets train exactly as sets from tensors do."""
from collections.abc import Callable

import numpy as np
import pytest
import torch
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets, to_float
from rbvae_nb.training import train
from rbvae_nb.vae import VAE
from torch.utils.data import Dataset, Subset, TensorDataset


def images(seed: int, n: int = 20) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


class Items(Dataset):
    """A data set that makes its items one by one, and remembers which it made."""
    def __init__(self, images: torch.Tensor, item: Callable): self.images, self.item, self.made = images, item, []
    def __len__(self) -> int: return len(self.images)

    def __getitem__(self, i: int):
        if i >= len(self): raise IndexError(i)
        self.made.append(i)
        return self.item(self.images[i])


KINDS = {
    'tensors': lambda x: Items(x, lambda image: image),
    'float': lambda x: Items(x, to_float),
    'tuples': lambda x: Items(x, lambda image: (image, 7, 'label')),
    'lists': lambda x: Items(x, lambda image: [image, None]),
    'TensorDataset': lambda x: TensorDataset(x, torch.arange(len(x))),
    'Subset': lambda x: Subset(TensorDataset(x.flip(0)), [*reversed(range(len(x)))]),
}


def sets_of(kind: str) -> ImageSets:
    return ImageSets(KINDS[kind](images(0)), KINDS[kind](images(1, 30)))


@pytest.mark.parametrize('kind', KINDS)
def test_batches_are_those_of_tensors(kind):
    """Bit for bit with the same generator, and so are the first images."""
    ours, theirs = sets_of(kind), ImageSets(images(0), images(1, 30))
    assert ours.image_size == 32 and ours.first(4).equal(images(0)[:4]) and ours.first(99).equal(images(0))
    draws = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(3):
        for a, b in zip(ours.batch(9, draws[0]), theirs.batch(9, draws[1])): assert a.equal(b)


def test_items_are_made_when_they_are_drawn():
    sets = sets_of('tensors')
    sets.unlabelled.made.clear()
    sets.batch(3)
    assert len(sets.unlabelled.made) == 3


@pytest.mark.parametrize('item, kind', [(np.asarray, 'ndarray'), (lambda x: dict(image=x), 'dict'),
                                        (lambda x: (str(x.shape), x), 'str'), (lambda x: None, 'NoneType')])
def test_items_that_are_no_tensors(item, kind):
    with pytest.raises(TypeError, match=rf'^expected a data set whose items are tensors .*, got {kind}; .*PILToTensor'):
        ImageSets(Items(images(0), item), images(1))


def trained(sets: ImageSets, out=None, steps: int = 2, **kwargs) -> VAE:
    """A small VAE after a few steps."""
    model = VAE.preset('small', seed=2)[0]
    train(model, sets, steps=steps, batch_size=4, lr=1e-3, device='cpu', out=out, log_every=1, progress=False, **kwargs)
    return model


def equal(ours: VAE, theirs: VAE) -> bool:
    return all(a.equal(b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_two_steps_are_those_on_tensors():
    assert equal(trained(sets_of('tuples')), trained(ImageSets(images(0), images(1, 30))))


def test_a_training_goes_on_exactly(tmp_path):
    """Stopped after step 3 with a checkpoint of step 2, and ended in step 4."""
    def stop(step, row):
        if step == 3: raise RuntimeError('stopped')
    with pytest.raises(RuntimeError, match='stopped'):
        trained(sets_of('tuples'), tmp_path, 4, checkpoint_every=2, callback=stop)
    assert load_tensors(tmp_path / 'checkpoint.safetensors')[1]['step'] == 2
    assert equal(trained(sets_of('tuples'), tmp_path, 4, checkpoint_every=2), trained(sets_of('tuples'), None, 4))


@pytest.mark.parametrize('other', [lambda: (TensorDataset(images(7)), TensorDataset(images(1, 30))),
                                   lambda: (TensorDataset(images(0)), TensorDataset(images(1, 29)))],
                         ids=['other images', 'one image less'])
def test_a_checkpoint_of_another_data_set_is_refused(tmp_path, other):
    trained(sets_of('TensorDataset'), tmp_path)
    with pytest.raises(ValueError, match='^expected a checkpoint of the same sets; .*: here .*, there .*; choose'):
        trained(ImageSets(*other()), tmp_path)

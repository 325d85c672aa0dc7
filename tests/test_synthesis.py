"""Synthesis with every method, on every device, in any batches."""
import pytest
import torch
from rbvae_nb.digits import digit_styles, to_bytes
from rbvae_nb.grid import METHODS
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.synthesis import attribute_transfer, conditional_synthesis, decode_table, draw_codes, frames_of, interpolate, random_panels, save_film


@pytest.fixture(scope='module')
def images() -> torch.Tensor:
    return digit_styles(n_styles=1).test.images[:100]


def uses(model, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """The images of every use that the model is made for."""
    every = {'panels': random_panels(model, 2, 3, seed=1), 'imitated': random_panels(model, 2, 3, seed=1, among=images),
             'walk': interpolate(model, images[:2], images[2:4], model.codes[-1], steps=3)}
    if 'e' in model.codes:
        every |= {'synthesis': conditional_synthesis(model, images[:2], 3, seed=1), 'transfer': attribute_transfer(model, images[:3], images[3:5])}
    return {name: table.images for name, table in every.items()}


@pytest.mark.parametrize('method', METHODS.values(), ids=METHODS)
def test_every_method(method, images):
    model, _ = method.preset('small')
    made = uses(model, images)
    assert {name: tuple(x.shape[:2]) for name, x in made.items()} == {
        'panels': (2, 3), 'imitated': (2, 3), 'walk': (2 if 'e' in model.codes else 1, 4), **({'synthesis': (2, 3), 'transfer': (2, 3)} if 'e' in model.codes else {})}
    assert all(x.isfinite().all() and x.abs().max() <= 1 for x in made.values())
    again = uses(model, images)
    assert all(torch.equal(x, again[name]) for name, x in made.items()), 'another draw with the same seed'
    if 'e' not in model.codes:
        for use in (conditional_synthesis, lambda m, x: attribute_transfer(m, x, x)):
            with pytest.raises(ValueError, match='codes z and e'): use(model, images)


def test_table_does_not_depend_on_batches(images):
    model = SRbVAE.pretrained()
    codes = dict(z=model.encode(images[:30])['z'][:, None], e=draw_codes(model, 20)['e'][None])
    table = decode_table(model, **codes)  # 600 cells: more than one batch
    for i, j in [(0, 0), (29, 19), (25, 1), (12, 7)]:
        assert torch.allclose(table[i, j], model.decode(z=codes['z'][i], e=codes['e'][:, j])[0], atol=1e-4)


def test_uint8_and_float_images_give_the_same(images):
    model = RbVAE.pretrained()
    table, other = (attribute_transfer(model, x[:2], x[2:4]) for x in (images, images.float() / 127.5 - 1))
    assert torch.allclose(table.images, other.images, atol=1e-5)
    assert (table.draw().get_size_inches() == other.draw().get_size_inches()).all() and table._repr_png_() == other._repr_png_()


def test_film_as_mp4(tmp_path, images):
    pytest.importorskip('imageio_ffmpeg', reason='no ffmpeg: pip install "rbvae-nb[video]"')
    import imageio.v3 as imageio
    table = interpolate(SRbVAE.pretrained(), images[:3], images[3:5], steps=5)  # 51 dots high: no even number
    frames, back = frames_of(table, zoom=1), imageio.imread(save_film(tmp_path / 'walk.mp4', table, fps=7), plugin='FFMPEG')
    assert len(back) == len(frames) == 6 and imageio.immeta(tmp_path / 'walk.mp4', plugin='FFMPEG')['fps'] == 7
    assert abs(back[:, ::2, ::2][:, :frames.shape[1], :frames.shape[2]].astype(float) - frames).mean() < 12


def test_walk_passes_its_waypoints(images):
    model = SRbVAE.pretrained()
    table = interpolate(model, images[:2], images[2:5], steps=4)
    at = [j for j, top in enumerate(table.top) if not (top == 255).all()]
    assert at == [0, 4, 8]
    for j, waypoint in zip(at, images[2:5]):
        assert torch.equal(table.top[j], waypoint)
        assert torch.allclose(table.images[:, j], model.transfer(waypoint[None], images[:2]), atol=1e-4)


def test_imitated_codes_are_used(images):
    model = SRbVAE.pretrained()
    prior, imitated = (conditional_synthesis(model, images[:2], 4, among=among) for among in (None, images))
    e = draw_codes(model, 4, among=images, codes=('e',))['e']
    assert not torch.equal(prior.images, imitated.images)
    assert torch.allclose(imitated.images[1, 3], model.decode(z=model.encode(images[1:2])['z'], e=e[3:])[0], atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU here')
def test_on_a_gpu_the_same(images):
    here, there = uses(SRbVAE.pretrained(), images), uses(SRbVAE.pretrained().cuda(), images)
    assert all((to_bytes(x).int() - to_bytes(there[name]).int()).abs().max() <= 2 for name, x in here.items())

"""Synthesis with every method, on other data, on every device, in any batches."""
import pytest
import torch
from rbvae_nb.digits import digit_styles
from rbvae_nb.images import ImageGrid, to_bytes
from rbvae_nb.methods import METHODS, Method, load
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.shapes import turned_shapes
from rbvae_nb.synthesis import (
    attribute_transfer,
    conditional_synthesis,
    decode_grid,
    frames_of,
    imitate_codes,
    interpolate,
    sample_codes,
    sample_panels,
    save_film,
)

EVERY = METHODS.all()
SHAPES = {'panels': (2, 3), 'imitated': (2, 3), 'walk': (2, 4), 'synthesis': (2, 3), 'transfer': (2, 3)}


@pytest.fixture(scope='module')
def images() -> torch.Tensor:
    return digit_styles(n_styles=1).test.images[:100]


def uses(model: Method, images: torch.Tensor) -> dict[str, ImageGrid]:
    """Every use that the model is made for."""
    every = {'panels': sample_panels(model, 2, 3, seed=1),
             'imitated': sample_panels(model, 2, 3, seed=1, among=images),
             'walk': interpolate(model, images[:2], images[2:4], model.codes[-1], steps=3)}
    if 'e' in model.codes:
        every |= {'synthesis': conditional_synthesis(model, images[:2], 3, seed=1),
                  'transfer': attribute_transfer(model, images[:3], images[3:5])}
    return every


def check(made: dict[str, ImageGrid], shapes: dict[str, tuple[int, int]], size: int):
    """Grids of the sizes that were asked for, whose pixels are in range."""
    assert {name: tuple(grid.images.shape) for name, grid in made.items()} == {
        name: (*shape, 3, size, size) for name, shape in shapes.items()}
    for grid in made.values(): assert grid.images.isfinite().all() and grid.images.abs().max() <= 1


@pytest.mark.parametrize('method', EVERY.values(), ids=EVERY)
def test_every_method(method, images):
    model, _ = method.preset('small')
    made, again = uses(model, images), uses(model, images)
    two = 'e' in model.codes
    check(made, SHAPES if two else {'panels': (2, 3), 'imitated': (2, 3), 'walk': (1, 4)}, 32)
    for name, grid in made.items():
        assert torch.equal(grid.images, again[name].images), 'another draw with the same seed'
    if two: return
    for use in (conditional_synthesis, lambda m, x: attribute_transfer(m, x, x)):
        with pytest.raises(ValueError, match='codes z and e'): use(model, images)


@pytest.mark.parametrize('size', [32, 48])
def test_every_use_on_shapes(size):
    """Another experiment, and another image size, by the same calls."""
    model = RbVAE(size, dim_z=6, dim_e=3, channels=(12, 8), generator_channels=(12, 10, 8, 8), patch=4).eval()
    images = turned_shapes(size, n=200).test.images
    made = uses(model, images)
    check(made, SHAPES, size)
    assert torch.equal(made['walk'].top[0], images[2]) and torch.equal(made['transfer'].left, images[3:5])
    assert frames_of(made['walk'], zoom=1).shape == (4, size + 2, 2 * (size + 2), 3)


def test_grid_does_not_depend_on_batches(images):
    model = load('srbvae')
    codes = dict(z=model.encode(images[:30])['z'][:, None], e=sample_codes(model, 20)['e'][None])
    grid = decode_grid(model, **codes)  # 600 images: more than one batch
    for i, j in [(0, 0), (29, 19), (25, 1), (12, 7)]:
        assert torch.allclose(grid[i, j], model.decode(z=codes['z'][i], e=codes['e'][:, j])[0], atol=1e-4)


def test_uint8_and_float_images_give_the_same(images):
    model = load('rbvae')
    grid, other = (attribute_transfer(model, x[:2], x[2:4]) for x in (images, images.float() / 127.5 - 1))
    assert torch.allclose(grid.images, other.images, atol=1e-5)
    assert (grid.draw().get_size_inches() == other.draw().get_size_inches()).all()
    assert grid._repr_png_() == other._repr_png_()


def test_film_as_mp4(tmp_path, images):
    pytest.importorskip('imageio_ffmpeg', reason='no ffmpeg: pip install "rbvae-nb[video]"')
    import imageio.v3 as imageio
    grid = interpolate(load('srbvae'), images[:3], images[3:5], steps=5)
    frames = frames_of(grid, zoom=1)[:, :33, :101]  # odd, which H.264 does not take
    path = save_film(tmp_path / 'walk.mp4', frames, fps=7)
    back = imageio.imread(path, plugin='FFMPEG')
    assert len(back) == len(frames) == 6 and imageio.immeta(path, plugin='FFMPEG')['fps'] == 7
    assert back.shape[1:3] == (34, 102)
    assert abs(back[:, :33:2, :101:2].astype(float) - frames[:, ::2, ::2]).mean() < 12


def test_walk_passes_its_waypoints(images):
    model = load('srbvae')
    grid = interpolate(model, images[:2], images[2:5], steps=4)
    at = [j for j, top in enumerate(grid.top) if not (top == 255).all()]
    assert at == [0, 4, 8]
    for j, waypoint in zip(at, images[2:5]):
        assert torch.equal(grid.top[j], waypoint)
        assert torch.allclose(grid.images[:, j], model.transfer(waypoint[None], images[:2]), atol=1e-4)


def test_imitated_codes_are_used(images):
    model = load('srbvae')
    prior, imitated = (conditional_synthesis(model, images[:2], 4, among=among) for among in (None, images))
    e, z = sample_codes(model, 4, among=images, codes=('e',))['e'], model.encode(images[1:2])['z']
    assert not torch.equal(prior.images, imitated.images)
    assert torch.allclose(imitated.images[1, 3], model.decode(z=z, e=e[3:])[0], atol=1e-4)


@pytest.mark.parametrize('noise', [0, .3, 1])
def test_imitated_codes_are_a_smoothed_bootstrap(noise):
    """Two far groups come nearer by √(1 + h²) and grow to h/√(1 + h²); mean and variance of all stay."""
    place, root = torch.tensor([1., -1]).repeat(500), (1 + noise ** 2) ** .5
    codes = torch.stack([5 + place, 3 * place.roll(1)], 1)  # (1000, 2), of variances 1 and 9, against each other
    drawn = imitate_codes(codes, 50_000, torch.Generator().manual_seed(1), noise)
    torch.testing.assert_close(drawn.mean(0), codes.mean(0), atol=.03, rtol=0)
    torch.testing.assert_close(drawn.T.cov(), codes.T.cov(), atol=.1, rtol=0)
    away, moment = (drawn[:, 0] - 5) * root, 1 + 6 * noise ** 2 + 3 * noise ** 4  # fourth, of ±1 plus normal numbers
    assert away.pow(4).mean().item() == pytest.approx(moment, rel=.03)
    same = imitate_codes(codes, 50_000, torch.Generator().manual_seed(1), noise)
    assert torch.equal(drawn, same) and not torch.equal(drawn, imitate_codes(codes, 50_000, noise=noise))


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU here')
def test_on_a_gpu_the_same(images):
    here, there = uses(load('srbvae'), images), uses(load('srbvae', device='cuda'), images)
    for name, grid in here.items():
        assert (to_bytes(grid.images).int() - to_bytes(there[name].images).int()).abs().max() <= 2

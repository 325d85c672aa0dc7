"""Folders of images: every kind of file, damaged ones, links, and a cache that is whole or not there."""
import errno
import io
import os
import random
import shutil
import struct
import sys
import warnings
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from rbvae_nb import folders
from rbvae_nb.folders import (MAX_PIXELS, CachedImages, Unreadable, cache_images, files_in, folder_sets, legible,
                              list_images, read_image)
from rbvae_nb.images import ImageSets, take

SUFFIXES = 'jpg', 'png', 'tif', 'webp', 'bmp', 'gif', 'jp2', 'ppm'


def picture(height: int = 40, width: int = 60, seed: int = 0) -> np.ndarray:
    """Smooth colours, (height, width, 3) bytes."""
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3))
    return np.clip(4 * (cv2.GaussianBlur(noise, (0, 0), 6) - 127) + 127, 0, 255).astype(np.uint8)


def encoded(suffix: str, pixels: np.ndarray | None = None, **options) -> bytes:
    """A file of this kind."""
    out = io.BytesIO()
    kind = Image.registered_extensions()[f'.{suffix}']
    Image.fromarray(picture() if pixels is None else pixels).save(out, kind, **options)
    return out.getvalue()


def filled(folder: Path, n: int = 6, suffix: str = 'png') -> Path:
    """A folder of n images."""
    folder.mkdir(parents=True)
    for i in range(n): (folder / f'{i:02}.{suffix}').write_bytes(encoded(suffix, picture(seed=i)))
    return folder


@pytest.mark.parametrize('suffix', SUFFIXES)
def test_every_kind_of_file(suffix: str, tmp_path):
    """Its middle, as OpenCV decodes and averages it; a name that lies about the kind does no harm."""
    path = tmp_path / 'image.jpeg'
    path.write_bytes(encoded(suffix))
    pixels = cv2.imdecode(np.frombuffer(encoded(suffix), np.uint8), cv2.IMREAD_COLOR)
    if pixels is None: pytest.skip('this OpenCV does not read it')
    expected = cv2.resize(pixels[:, 10:50, ::-1], (20, 20), interpolation=cv2.INTER_AREA)
    got = read_image(path, 20).permute(1, 2, 0).numpy()
    assert got.shape == (20, 20, 3) and got.dtype == np.uint8
    assert np.abs(got.astype(int) - expected).mean() < 3


@pytest.mark.parametrize('fit, black', [('crop', 0), ('pad', 2 * 10), ('stretch', 0)])
def test_fits(fit: str, black: int, tmp_path):
    """A white image of 40 × 60 in 60 pixels: `pad` alone adds rows, above and below alike."""
    (tmp_path / 'white.png').write_bytes(encoded('png', np.full((40, 60, 3), 255, np.uint8)))
    rows = (read_image(tmp_path / 'white.png', 60, fit) == 0).all(0).all(1)
    assert rows.sum() == black and rows.equal(rows.flip(0))


@pytest.mark.parametrize('orientation', range(1, 9))
def test_turned_by_the_camera(orientation: int, tmp_path):
    """As Pillow's viewer shows it, for each of the eight ways to hold a camera."""
    corner = np.zeros((8, 8, 3), np.uint8)
    corner[:4, :4], corner[:4, 4:] = 250, 120
    exif = Image.Exif()
    exif[274] = orientation
    (tmp_path / 'turned.png').write_bytes(encoded('png', corner, exif=exif))
    got = read_image(tmp_path / 'turned.png', 8)[0].numpy()
    turns = {1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: np.transpose,
             6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).T, 8: np.rot90}
    assert (got == turns[orientation](corner[..., 0])).all()


@pytest.mark.parametrize('mode, expected', [
    ('L', (100, 100, 100)), ('1', (255, 255, 255)), ('P', (100, 100, 100)), ('RGBA', (225, 225, 225)),
    ('LA', (225, 225, 225)), ('CMYK', (100, 100, 100)), ('I;16', (100, 100, 100))])
def test_modes(mode: str, expected: tuple, tmp_path):
    """A grey of 100, by every way to write it; where it is transparent, a fifth opaque on white."""
    grey = Image.new('L', (8, 8), 100)
    if mode == 'I;16': image = Image.fromarray(np.full((8, 8), 100 * 257, np.uint16))
    elif mode == '1': image = Image.new('1', (8, 8), 1)
    elif mode in ('RGBA', 'LA'):
        image = grey.convert(mode)
        image.putalpha(50)
    else: image = grey.convert('RGB').convert(mode) if mode == 'CMYK' else grey.convert(mode)
    path = tmp_path / f'image.{"tif" if mode == "CMYK" else "png"}'
    image.save(path)
    got = read_image(path, 8)[:, 3, 3]
    assert np.abs(got.numpy().astype(int) - expected).max() <= 1


@pytest.mark.parametrize('pixels', [np.full((8, 8), .5, np.float32), np.full((8, 8), 70_000, np.int32),
                                    np.full((8, 8), -1, np.int32)], ids=['float', 'too much', 'negative'])
def test_pixels_of_another_range(pixels: np.ndarray, tmp_path):
    Image.fromarray(pixels).save(tmp_path / 'image.tif')
    with pytest.raises(Unreadable, match='pixels'): read_image(tmp_path / 'image.tif', 8)


def malformed(suffix: str, seed: int) -> bytes:
    """A file that was cut, or in which some bytes are others."""
    draw, data = random.Random(f'{suffix} {seed}'), bytearray(encoded(suffix))
    if seed % 2: return bytes(data[:draw.randrange(1, len(data))])
    for _ in range(draw.choice([1, 5, 50])): data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


@pytest.mark.parametrize('suffix', SUFFIXES)
def test_malformed_files(suffix: str, tmp_path):
    """Sixty a kind: an image of the right shape, or a reason in one line; cut ones of most kinds are noticed."""
    refused = dict(cut=0, changed=0)
    for seed in range(60):
        path = tmp_path / f'{seed}.{suffix}'
        path.write_bytes(malformed(suffix, seed))
        try:
            with folders._quiet(): assert read_image(path, 16).shape == (3, 16, 16)
        except Unreadable as error:
            refused['cut' if seed % 2 else 'changed'] += 1
            assert str(error) and len(str(error).splitlines()) == 1
    assert refused['cut'] >= (15 if suffix in ('jp2', 'gif') else 28), refused


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    header, data = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0), zlib.compress(bytes(100))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', data) + chunk(b'IEND', b'')


@pytest.mark.parametrize('size', [(8193, 8192), (30_000, 3000), (30_000, 30_000), (2 ** 31 - 1, 1)])
def test_large_files_are_refused_before_they_are_decoded(size: tuple[int, int], tmp_path, monkeypatch):
    monkeypatch.setattr(folders, '_pixels', lambda image: pytest.fail('decoded'))
    (tmp_path / 'bomb.png').write_bytes(bomb(*size))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        with pytest.raises(Unreadable, match='more than 67 million pixels'): read_image(tmp_path / 'bomb.png', 16)
    assert MAX_PIXELS == 8192 ** 2


def test_the_reasons_of_a_listing(tmp_path):
    """Whatever lies in a folder is counted: an image, or skipped with its reason; nothing is silently lost."""
    root = filled(tmp_path / 'images', 3)
    (root / 'bomb.png').write_bytes(bomb(20_000, 20_000))
    (root / 'empty.png').write_bytes(b'')
    (root / 'notes.txt').write_text('no image')
    (root / 'gone.png').symlink_to(tmp_path / 'nowhere.png')
    (root / '.hidden.png').write_bytes(encoded('png'))
    (root / 'Größe 東京').mkdir()
    (root / 'Größe 東京' / 'ñ "x" &.png').write_bytes(encoded('png', picture(24, 90)))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        found = list_images(root)
    assert found.images == {f'{i:02}.png': (60, 40) for i in range(3)} | {'Größe 東京/ñ "x" &.png': (90, 24)}
    assert found.skipped == {'bomb.png': 'more than 67 million pixels', 'empty.png': 'not an image',
                             'notes.txt': 'not an image', 'gone.png': 'not there any more'}
    assert '4 images, their shorter sides from 24 to 40' in str(found) and 'skipped 2: not an image' in str(found)


def test_links_are_followed_and_loops_entered_once(tmp_path):
    root, other = filled(tmp_path / 'a', 2), filled(tmp_path / 'b', 2)
    (root / 'other').symlink_to(other, target_is_directory=True)
    (other / 'back').symlink_to(root, target_is_directory=True)
    (root / 'self').symlink_to(root, target_is_directory=True)
    (root / 'round').symlink_to(root / 'round')
    assert list(files_in(root)) == ['00.png', '01.png', 'round', 'other/00.png', 'other/01.png']
    assert list_images(root).skipped['round'].startswith('cannot be read: ')


@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='this system has no named pipes')
def test_a_pipe_is_skipped_and_not_waited_for(tmp_path):
    root = filled(tmp_path / 'images', 2)
    os.mkfifo(root / 'pipe.png')
    assert list_images(root).skipped == {'pipe.png': 'not a file'}
    with pytest.raises(Unreadable, match='not a file'): read_image(root / 'pipe.png', 8)


def test_what_is_not_the_fault_of_a_file_is_no_reason(tmp_path, monkeypatch):
    """Too many open files: an image is not lost for that, the caching fails and leaves nothing."""
    def full(*_, **__): raise OSError(errno.EMFILE, 'Too many open files')
    root = filled(tmp_path / 'images')
    listing = list_images(root)
    monkeypatch.setattr(folders, 'list_images', lambda folder: listing)
    monkeypatch.setattr(folders.Image, 'open', full)
    with pytest.raises(OSError, match='Too many open files'): cache_images(root, tmp_path / 'cache', 8, progress=False)
    assert not (tmp_path / 'cache').exists() and not (tmp_path / 'cache.part').exists()


@pytest.mark.skipif(os.name != 'posix' or sys.platform == 'darwin', reason='here every name of a file is a text')
def test_names_that_are_no_text(tmp_path, capsys):
    root = filled(tmp_path / 'images')
    (root / '00.png').rename(root / os.fsdecode(b'caf\xe9.png'))
    cached = cache_images(root, tmp_path / 'cache', 8, progress=False)
    assert CachedImages(tmp_path / 'cache').names == cached.names and len(cached) == 6
    print(*map(legible, cached.names))
    assert r'caf\udce9.png' in capsys.readouterr().out


def test_one_folder_within_the_other(tmp_path):
    """Its images would be in both sets."""
    outer = filled(tmp_path / 'outer')
    inner = filled(outer / 'inner')
    for folders_of_it in ((outer, inner), (inner, outer), (outer, outer / '.')):
        with pytest.raises(ValueError, match='^expected folders apart from each other'):
            folder_sets(*folders_of_it, tmp_path / 'cache', progress=False)


def test_a_cache_of_other_pixels_has_another_fingerprint(tmp_path):
    """Though there are as many, and the first are the same."""
    one, two = filled(tmp_path / 'one', 20), filled(tmp_path / 'two', 20)
    (two / '19.png').write_bytes(encoded('png', picture(seed=99)))
    sets = [folder_sets(folder, filled(tmp_path / f'{folder.name}-r', 3), tmp_path / f'{folder.name}-cache', 8,
                        progress=False) for folder in (one, two)]
    prints = [s.fingerprint() for s in sets]
    assert prints[0]['unlabelled'] != prints[1]['unlabelled'] and prints[0]['reference'] == prints[1]['reference']


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='a superuser may read everything')
def test_what_may_not_be_read_is_said(tmp_path):
    root = filled(tmp_path / 'images', 3)
    closed = filled(root / 'closed', 1)
    (root / '00.png').chmod(0)
    closed.chmod(0)
    reasons = {'00.png': 'no permission to read it', 'closed': 'a folder that cannot be read'}
    try: assert list_images(root).skipped == reasons
    finally: closed.chmod(0o700)


@pytest.mark.parametrize('what', ['nowhere', 'a file'])
def test_no_folder(what: str, tmp_path):
    (tmp_path / 'a file').write_bytes(encoded('png'))
    with pytest.raises(NotADirectoryError, match='^expected a folder with images, found none at'):
        list_images(tmp_path / what)


def test_the_cache_holds_what_reading_gives(tmp_path):
    root = filled(tmp_path / 'images', 300)
    (root / '007.png').write_bytes(encoded('png')[:-40])
    (root / 'zz.png').write_bytes(encoded('png')[:-40])
    cached = cache_images(root, tmp_path / 'cache', 8, 'stretch', progress=False)
    assert cached.names == sorted(f'{i:02}.png' for i in range(300))
    assert list(cached.about['skipped']) == ['007.png', 'zz.png']
    for i in (0, 150, 255, 256, 299): assert cached[i].equal(read_image(root / cached.names[i], 8, 'stretch'))
    assert torch.stack(cached.__getitems__([5, 5, 2])).equal(torch.stack([cached[5], cached[5], cached[2]]))
    assert not [*tmp_path.glob('*.part')]


def test_the_same_folder_gives_the_same_cache(tmp_path):
    root = filled(tmp_path / 'images')
    one, two = (cache_images(root, tmp_path / name, 16, progress=False) for name in ('one', 'two'))
    assert one.about == two.about and one.pixels.read_bytes() == two.pixels.read_bytes()
    (root / '00.png').write_bytes(encoded('png', picture(seed=99)))
    assert cache_images(root, tmp_path / 'three', 16, progress=False).about['digest'] != one.about['digest']
    assert cache_images(root, tmp_path / 'one', 16).pixels.read_bytes() == two.pixels.read_bytes()


def test_a_batch_of_cached_images_is_that_of_a_tensor(tmp_path):
    sets = folder_sets(filled(tmp_path / 'u', 9), filled(tmp_path / 'r', 5), tmp_path / 'cache', 16, progress=False)
    tensors = ImageSets(*(take(images, range(len(images))) for images in (sets.unlabelled, sets.reference)))
    batches = [s.batch(20, torch.Generator().manual_seed(3)) for s in (sets, tensors)]
    for ours, theirs in zip(*batches): assert ours.equal(theirs)
    assert (len(sets.unlabelled), len(sets.reference), sets.image_size) == (9, 5, 16)


@pytest.mark.parametrize('change', ['shorter', 'longer', 'index', 'names'])
def test_a_damaged_cache_is_refused(change: str, tmp_path):
    cache = tmp_path / 'cache'
    cache_images(filled(tmp_path / 'images'), cache, 8, progress=False)
    pixels, index = cache / 'pixels.u8', cache / 'index.json'
    if change in ('shorter', 'longer'): os.truncate(pixels, pixels.stat().st_size + (1 if change == 'longer' else -1))
    elif change == 'index': index.write_bytes(index.read_bytes()[:50])
    else: index.write_text('{"image_size": 8}')
    with pytest.raises(ValueError, match='delete that folder$'): CachedImages(cache)


def test_a_cache_of_other_images_is_refused(tmp_path):
    one, two = filled(tmp_path / 'one'), filled(tmp_path / 'two')
    cache_images(one, tmp_path / 'cache', 8, progress=False)
    for folder, size, fit, key in ((two, 8, 'crop', 'folder'), (one, 9, 'crop', 'image_size'), (one, 8, 'pad', 'fit')):
        with pytest.raises(ValueError, match=f'^expected a cache with {key} '):
            cache_images(folder, tmp_path / 'cache', size, fit)


def test_too_few_images_leave_nothing(tmp_path):
    root = filled(tmp_path / 'images', 1)
    (root / 'zz.png').write_bytes(encoded('png')[:60])
    with pytest.raises(ValueError, match=r'^expected at least two images .* got 1 \(1 skipped: damaged'):
        cache_images(root, tmp_path / 'cache', 8, progress=False)
    assert not [*tmp_path.glob('cache*/')]


def test_a_full_disk_leaves_nothing(tmp_path):
    """/dev/full takes nothing: the error says what is missing, and no cache is there."""
    if not Path('/dev/full').exists(): pytest.skip('this system has no /dev/full')
    part, opened = tmp_path / 'cache.part', open
    def full(path, *args, **kwargs): return opened('/dev/full' if 'pixels' in str(path) else path, *args, **kwargs)
    folders.open = full
    try:
        with pytest.raises(OSError, match='^expected to write a cache of 6 images into'):
            cache_images(filled(tmp_path / 'images'), tmp_path / 'cache', 32, progress=False)
    finally: del folders.open
    assert not part.exists() and not (tmp_path / 'cache').exists()


def test_a_folder_that_changes_underneath(tmp_path, monkeypatch):
    """An image that goes while others are read is skipped with its reason; afterwards the cache alone counts."""
    root = filled(tmp_path / 'images')
    real = folders.list_images
    def then_one_goes(folder):
        found = real(folder)
        (root / '03.png').unlink()
        return found
    monkeypatch.setattr(folders, 'list_images', then_one_goes)
    cached = cache_images(root, tmp_path / 'cache', 8, progress=False)
    assert cached.about['skipped'] == {'03.png': 'not there any more'} and len(cached) == 5
    shutil.rmtree(root)
    assert cached[4].shape == (3, 8, 8)

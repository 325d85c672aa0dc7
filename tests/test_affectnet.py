"""AffectNet: both layouts and their variants, every fault of a row, splits, and the command on a small copy."""
import csv
import json
import os
import pickle
import shutil
import sys
import types
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from rbvae_nb import affectnet as module
from rbvae_nb import cli
from rbvae_nb.affectnet import (BY_CODE, COLUMNS, NO_EXPRESSION, POSES, PUBLISHED, Chosen, Face, Left, affectnet,
                                cache_faces, census, expression_code, faces, find_copy, head_turn, left_out, n_each,
                                plain_name, poses, read_detected, read_face, split_rows)
from rbvae_nb.alignment import mean_shape, target
from rbvae_nb.attributes import save_classifier, train_classifier
from rbvae_nb.experiments import find_experiment
from rbvae_nb.faces import EXPRESSIONS
from rbvae_nb.folders import CachedImages, Unreadable
from rbvae_nb.sweep import read_rows
from test_alignment import face, posed

N = 8 * 81  # faces of a small copy, all expressions in turn


def landmarks(i: int) -> np.ndarray:
    """Of the i-th face, in an image of 60 pixels; its nose says to which side the head is turned."""
    points = face(i, .02)
    points[27:36, 0] += (i % 5 - 2) * .1
    return posed(points, 10 * np.sin(i), 18 + i % 4, (30, 20)).round(2)


def photograph(i: int, size: int = 60) -> np.ndarray:  # blue first
    """An image for it: the colour of its ground says which it is, and so all of it; a white dot is on its nose."""
    image = np.full((size, size, 3), [10 + 9 * (i // 40), 30 + 25 * (i % 5), 10 + 20 * (i % 8)], np.uint8)
    middle = (16 * landmarks(i)[30]).round().astype(int).tolist()  # in sixteenths of a pixel
    return cv2.circle(image, middle, 5 * 16, (255, 255, 255), -1, cv2.LINE_AA, 4)


def numbers(images: torch.Tensor) -> np.ndarray:  # (N, 3, H, H) uint8, red first, to (N,)
    """Which photographs these are, by the ground in a corner."""
    red, green, blue = ((images[:, :, 1, 1].numpy() - [10, 30, 10]) / [20, 25, 9]).round().astype(int).T
    return (25 * red + 16 * green) % 40 + 40 * blue  # red is i mod 8, green is i mod 5


def squares(images) -> torch.Tensor:  # a data set of images, stacked
    return torch.stack(images.__getitems__(range(len(images))))


def middle_of_dot(square: torch.Tensor) -> np.ndarray:  # (3, H, H) to (x, y)
    """The centre of what is brighter than any ground."""
    bright = (square.double().mean(0) - 160).clamp(0).numpy()
    at = np.arange(len(bright))
    return np.array([bright.sum(0) @ at, bright.sum(1) @ at]) / bright.sum()


def marks(points: np.ndarray) -> str: return ';'.join(f'{value:g}' for value in points.ravel())


def row(name: str, i: int = 0, code: object = 1, points: str | None = None) -> list[str]:
    return [name, '0', '0', '60', '60', marks(landmarks(i)) if points is None else points, str(code), '0.1', '-0.2']


def written_lists(root: Path, n: int = N, lists: str = '', images: str = 'Manually_Annotated_Images',
                  head: bool = True) -> Path:
    """The layout of 2017, every fifth face in the list for validation."""
    (root / images / '7').mkdir(parents=True)
    (root / lists).mkdir(parents=True, exist_ok=True)
    rows: dict[str, list] = {name: [list(COLUMNS)] * head for name in ('training', 'validation')}
    for i in range(n):
        cv2.imwrite(str(root / images / f'7/{i}.png.jpg'), photograph(i))
        rows['training' if i % 5 else 'validation'].append(row(f'7/{i}.png.jpg', i, i % 8))
    for name, table in rows.items():
        with open(root / lists / f'{name}.csv', 'w', newline='') as file: csv.writer(file).writerows(table)
    return root


def written_sets(root: Path, n: int = N, sets: tuple[str, ...] = ('train_set', 'val_set')) -> Path:
    """The later layout, codes as texts in every other file."""
    for i in range(n):
        folder = root / sets[not i % 5 and -1]
        for name in ('images', 'annotations'): (folder / name).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f'images/{i}.jpg'), photograph(i))
        for kind, value in dict(exp=str(i % 8) if i % 2 else i % 8, lnd=landmarks(i).ravel(), val=.1, aro=.2).items():
            np.save(folder / f'annotations/{i}_{kind}.npy', value)
    return root


def add(root: Path, *rows: list[str]) -> None:
    """Rows at the end of the list for training."""
    with open(root / 'training.csv', 'a', newline='') as file: csv.writer(file).writerows(rows)


def read(root: Path) -> tuple[list[Face], list[Left]]:
    found = list(faces(find_copy(root)))
    return [one for one in found if isinstance(one, Face)], [one for one in found if isinstance(one, Left)]


@pytest.fixture(scope='module')
def lists(tmp_path_factory) -> Path: return written_lists(tmp_path_factory.mktemp('affectnet') / '2017')


@pytest.fixture(scope='module')
def sets(tmp_path_factory) -> Path: return written_sets(tmp_path_factory.mktemp('affectnet') / 'later')


@pytest.fixture
def neutral(tmp_path: Path) -> Path:
    """Photographs of neutral faces, larger than those of the copy."""
    (tmp_path / 'neutral').mkdir()
    for i in range(0, 80, 8): cv2.imwrite(str(tmp_path / f'neutral/{i}.png'), photograph(i))
    return tmp_path / 'neutral'


@pytest.fixture(scope='module')
def data(lists: Path):
    with pytest.warns(UserWarning, match="own neutral faces, many of which are not neutral"):
        return affectnet(32, lists, progress=False)


# Layouts

@pytest.mark.parametrize('lists, images', [
    ('', 'Manually_Annotated_Images'),
    ('Manually_Annotated_file_lists', 'Manually_Annotated/Manually_Annotated_Images'),
    ('Manually_Annotated', 'Manually_Annotated/Manually_Annotated_Images'), ('', ''),
    ('Manually_Annotated/Manually_Annotated_file_lists', f'Manually_Annotated{2 * "/Manually_Annotated_Images"}'),
    ('', 'Manually_Annotated_Images/Manually_Annotated_Images'), ('', 'Manually_Annotated')])
@pytest.mark.parametrize('head', [True, False], ids=['head', 'no head'])
def test_lists_and_their_variants(lists: str, images: str, head: bool, tmp_path: Path):
    root = written_lists(tmp_path / 'copy', 12, lists, images, head)
    found, left = read(root)
    assert not left and len(found) == 12
    for one in found:
        i = int(Path(one.name).name.partition('.')[0])
        assert one.expression == i % 8 and np.allclose(one.landmarks, landmarks(i)) and one.path.is_file()


@pytest.mark.parametrize('folders', [('train_set', 'val_set'), ('train_set',), ('',)], ids=str)
def test_sets_and_their_variants(folders: tuple, tmp_path: Path):
    found, left = read(written_sets(tmp_path, 12, folders))
    assert not left and len(found) == 12
    for one in found:
        i = int(one.path.stem)
        assert one.expression == i % 8 and np.allclose(one.landmarks, landmarks(i))
        assert one.name == one.path.relative_to(tmp_path).as_posix()


def test_other_columns_and_a_byte_order_mark(tmp_path: Path):
    root = written_lists(tmp_path, 3)
    text = (root / 'training.csv').read_text().splitlines()
    swapped = [','.join(reversed(line.split(','))) for line in text]
    (root / 'training.csv').write_text('\ufeff' + '\n\n'.join(swapped) + '\n', encoding='utf-8')
    assert [one.expression for one in read(root)[0]] == [1, 2, 0] and not read(root)[1]


@pytest.mark.parametrize('files', [{}, {'labels.csv': 'a,b'}, {'images/1.jpg': ''}])
def test_no_affectnet_is_one_sentence(files: dict, tmp_path: Path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    says = '^expected AffectNet in .* found neither training.csv nor validation.csv .* nor train_set/ or val_set/ with'
    with pytest.raises(FileNotFoundError, match=says): find_copy(tmp_path)
    with pytest.raises(NotADirectoryError, match='expected a folder with AffectNet'): find_copy(tmp_path / 'none')


@pytest.mark.parametrize('text', ['', 'file,label\na,1', '7/1.jpg,0,0,1,1,12;3,1,0', '\0\1\2', 'a;b;c'])
def test_a_list_with_other_columns_is_one_sentence(text: str, tmp_path: Path):
    (tmp_path / 'training.csv').write_text(text)
    with pytest.raises(ValueError, match='^expected the columns subDirectory_filePath, facial_landmarks, expr'):
        census(find_copy(tmp_path))


# Rows

@pytest.mark.parametrize('broken, reason', [
    (row('7/gone.jpg'), 'no such image'), (row('../../x'), 'a name that leaves the folder'),
    (row('/etc/passwd'), 'a name that leaves the folder'), (row('C:\\x.jpg'), 'a name that leaves the folder'),
    (row('7\\..\\..\\x.jpg'), 'a name that leaves the folder'), (row(''), 'a row without a name'),
    (row('7/new.jpg', points=marks(landmarks(0)[:67])), 'another number of landmarks than 68: 67'),
    (row('7/new.jpg', points=''), 'landmarks that are no numbers'),
    (row('7/new.jpg', points=marks(landmarks(0)) + ';1;2'), 'another number of landmarks than 68: 69'),
    (row('7/new.jpg', points='nan;' * 135 + '1'), 'landmarks with NaN or infinity'),
    (row('7/new.jpg', points='inf;' * 135 + '1'), 'landmarks with NaN or infinity'),
    (row('7/new.jpg', points='x;' * 135 + '1'), 'landmarks that are no numbers'),
    (row('7/new.jpg', points='3;' * 136), 'landmarks that are no face: all in one place or line'),
    (row('7/new.jpg', code=8), 'labelled as none'), (row('7/new.jpg', code=9), 'labelled as uncertain'),
    (row('7/new.jpg', code=10), 'labelled as no face'), (row('7/new.jpg', code=11), 'an unknown expression: 11'),
    (row('7/new.jpg', code=-1), 'an unknown expression: -1'), (row('7/new.jpg', code='x'), 'an expression that is no'),
    (row('7/1.png.jpg'), 'listed twice'), (['7/new.jpg', '0'], 'a row with too few columns')])
def test_a_broken_row_is_left_out_with_its_reason(broken: list, reason: str, tmp_path: Path):
    """And the row after it is read."""
    root = written_lists(tmp_path, 3)
    shutil.copy(root / 'Manually_Annotated_Images/7/0.png.jpg', root / 'Manually_Annotated_Images/7/new.jpg')
    add(root, broken, row('7\\new.jpg', code=6))
    found, left = read(root)
    assert [one.expression for one in found if one.name == '7/new.jpg'] == [6] and len(found) == 4
    assert len(left) == 1 and left[0].reason.startswith(reason) and left[0].name.startswith('training.csv, line 4: ')


def test_damage_within_a_list(tmp_path: Path):
    """Bytes that are no text, and a field without an end: a row is lost, and the others are not."""
    root = written_lists(tmp_path, 3)
    with open(root / 'training.csv', 'ab') as file: file.write(b'\xff\xfe\x00,,,\n"7/1.png.jpg,' + b'x' * 200_000)
    found, left = read(root)
    assert len(found) == 3 and len(left) >= 1


@pytest.mark.parametrize('name, content, reason', [
    ('1_exp.npy', None, 'no annotation _exp'), ('1_lnd.npy', None, 'no annotation _lnd'),
    ('1_exp.npy', b'', 'a damaged annotation _exp'), ('1_lnd.npy', b'\x93NUMPY\1\0', 'a damaged annotation _lnd'),
    ('1_lnd.npy', bytes(100_000), 'a damaged annotation _lnd'), ('1_lnd.npy', np.zeros(135), 'another number'),
    ('1_lnd.npy', np.array(['a'] * 136), 'landmarks that are no numbers'), ('1_exp.npy', np.zeros(3), 'an expression'),
    ('1_exp.npy', np.array(9), 'labelled as uncertain'), ('1_exp.npy', np.array('11'), 'an unknown expression: 11'),
    ('1_lnd.npy', np.full(136, np.nan), 'landmarks with NaN'), ('1_lnd.npy', pickle.dumps(1), 'a damaged annotation')])
def test_a_broken_annotation_is_left_out_with_its_reason(name: str, content, reason: str, tmp_path: Path):
    root = written_sets(tmp_path, 3)
    path = root / 'train_set/annotations' / name
    path.unlink()
    if isinstance(content, bytes): path.write_bytes(content)
    elif content is not None: np.save(path, content)
    found, left = read(root)
    assert len(found) == 2 and [one.name for one in left] == ['train_set/images/1.jpg']
    assert left[0].reason.startswith(reason)


def test_nothing_in_an_annotation_is_run(tmp_path: Path):
    root = written_sets(tmp_path, 3)
    class Evil:
        def __reduce__(self): return os.mkdir, (str(tmp_path / 'was run'),)
    np.save(root / 'train_set/annotations/1_exp.npy', np.array([Evil()], object), allow_pickle=True)
    assert read(root)[1][0].reason == 'a damaged annotation _exp' and not (tmp_path / 'was run').exists()


def test_an_annotation_without_its_image(tmp_path: Path):
    root = written_sets(tmp_path, 3)
    (root / 'train_set/images/2.jpg').unlink()
    assert read(root)[1] == [('train_set/images/2.jpg', 'no such image')]


@pytest.mark.parametrize('code', range(8))
def test_codes_are_the_published_ones(code: int):
    names = ['neutral', 'happiness', 'sadness', 'surprise', 'fear', 'disgust', 'anger', 'contempt']
    assert BY_CODE[expression_code(f'{code}')] == names[code] and code not in NO_EXPRESSION


def test_names_are_made_plain():
    assert plain_name('12\\a b.jpg') == plain_name('./12/a b.jpg ') == '12/a b.jpg'
    with pytest.raises(Unreadable): plain_name('a\0b')


def test_a_face_in_both_lists_counts_once(tmp_path: Path):
    """The list for training comes first."""
    root = written_lists(tmp_path, 3)
    add(root, row('7/0.png.jpg', code=0))
    found, left = read(root)
    assert sorted(one.name for one in found) == [f'7/{i}.png.jpg' for i in range(3)]
    assert left == [('validation.csv, line 2: 7/0.png.jpg', 'listed twice')]


def test_the_mean_shape_is_that_of_all_faces(lists: Path, monkeypatch):
    """Of more than are summed at a time; those that are left out do not count."""
    points = [landmarks(i) for i in range(2300)]
    some = [Face(f'{i}', lists, p, i % 8) for i, p in enumerate(points)]
    monkeypatch.setattr(module, 'faces', lambda copy: iter([Left('a', 'no such image'), *some]))
    found = census(find_copy(lists))
    assert np.abs(found.shape - mean_shape(np.stack(points))).max() < 1e-9
    assert found.counts.tolist() == np.bincount(np.arange(2300) % 8).tolist() and found.left == {'no such image': 1}


# Squares

def test_squares_are_those_of_the_landmarks(lists: Path):
    """The dot on the nose is where the best six numbers, by numpy's own regression, bring it."""
    shape = mean_shape(np.stack([landmarks(i) for i in range(40)]))
    goal, found = target(shape, 48), read(lists)[0]
    for one in found[:20]:
        points = np.c_[landmarks(int(Path(one.name).name.partition('.')[0])), np.ones(68)]
        nose = points[30] @ np.linalg.lstsq(points, goal, rcond=None)[0]
        assert np.abs(middle_of_dot(read_face(one, shape, 48, 'affine').image) - nose).max() < .2, one.name


def test_a_large_file_gives_the_square_of_a_small_one(tmp_path: Path, monkeypatch):
    """It is decoded at a quarter, the smallest size that has two pixels for one."""
    shape, small = mean_shape(landmarks(0)[None]), cv2.GaussianBlur(photograph(0), (0, 0), 2)
    decode, reduced, found = module.read_pixels, list[int](), list[torch.Tensor]()
    monkeypatch.setattr(module, 'read_pixels', lambda *of, **how: reduced.append((out := decode(*of, **how))[1]) or out)
    for times in (1, 8):
        path = tmp_path / f'{times}.jpg'
        cv2.imwrite(str(path), cv2.resize(small, None, fx=times, fy=times), [cv2.IMWRITE_JPEG_QUALITY, 98])
        points = (landmarks(0) + .5) * times - .5
        found.append(read_face(Face('x', path, points, 0), shape, 40).image.float())
    assert reduced == [1, 4] and (found[0] - found[1]).abs().mean() < 2


def test_unreadable_images_and_landmarks_outside(tmp_path: Path):
    shape = mean_shape(landmarks(0)[None])
    (tmp_path / 'a.jpg').write_bytes(b'no image')
    assert read_face(Face('a', tmp_path / 'a.jpg', landmarks(0), 0), shape).image == 'not an image'
    cv2.imwrite(str(tmp_path / 'b.jpg'), photograph(0))
    path = tmp_path / 'b.jpg'
    assert read_face(Face('b', path, landmarks(0) + 60, 0), shape).image == 'landmarks outside of the image'
    assert read_face(Face('b', path, landmarks(0) - 60, 0), shape).image == 'landmarks outside of the image'
    jaw = landmarks(0)
    jaw[:17, 1] += 200
    assert not isinstance(read_face(Face('b', path, jaw, 0), shape).image, str)  # a jaw that is cut off is none
    mirrored = landmarks(0) * [-1, 1] + [60, 0]
    assert 'mirrored' in read_face(Face('b', path, mirrored, 0), shape).image


def test_a_face_at_the_side_of_a_wide_image(neutral: Path):
    """Width and height are not confused: the same face in the middle of a small image gives the same square."""
    shape, wide = mean_shape(landmarks(8)[None]), neutral / 'wide.png'
    cv2.imwrite(str(wide), cv2.copyMakeBorder(photograph(8), 0, 0, 100, 0, cv2.BORDER_REPLICATE))
    plain = read_face(Face('', neutral / '8.png', landmarks(8), 0), shape, 32).image
    moved = landmarks(8) + np.array([100, 0])
    assert plain.equal(read_face(Face('', wide, moved, 0), shape, 32).image)
    assert plain.equal(read_detected(wide, lambda image: moved, shape, size=32))


def test_landmarks_are_those_of_the_pixels_as_they_are_stored(tmp_path: Path):
    """A file that asks to be shown turned is aligned as it is."""
    from PIL import Image
    exif, shape = Image.Exif(), mean_shape(landmarks(1)[None])
    exif[0x112] = 6  # by a quarter
    for name, more in (('a', {}), ('b', dict(exif=exif))):
        Image.fromarray(photograph(1)).save(tmp_path / f'{name}.jpg', quality=95, **more)
    plain, turned = (read_face(Face('', tmp_path / f'{name}.jpg', landmarks(1), 0), shape, 32).image for name in 'ab')
    assert plain.equal(turned)


def test_turn_of_the_head():
    points = face(0, 0)
    across = np.ptp(points[:17, 0])
    points[30] = [(points[0, 0] + points[16, 0]) / 2 + .1 * across, 1]
    assert np.isclose(head_turn(points), .2) and np.isclose(head_turn(posed(points, 50, 7, (3, 4))), .2)
    turns = np.array([.5, -.5, 0])
    assert list(poses(turns, turns)) == [POSES[2], POSES[0], POSES[1]] == ['right', 'left', 'ahead']


def test_cache_and_what_was_left_out(tmp_path: Path, capsys):
    root = written_lists(tmp_path / 'copy')
    (root / 'Manually_Annotated_Images/7/4.png.jpg').write_bytes(b'')
    add(root, row('7/gone.jpg'), row('7/gone.jpg'), row('7/1.png.jpg'))
    cached = cache_faces(root, tmp_path / 'cache', 32)
    assert len(cached) == N - 1 and 'left out 2: no such image' in capsys.readouterr().out
    assert 'left out 1: not an image' in left_out(cached) and len(cached.skipped) == 4
    assert cached.skipped['7/4.png.jpg'] == 'not an image'
    known = cached.about['known']
    codes = [int(Path(name).name.partition('.')[0]) % 8 for name in cached.names]
    assert known['expression'] == codes and len(known['turn']) == N - 1
    before = cached.pixels.stat().st_mtime_ns
    assert cache_faces(root, tmp_path / 'cache', 32).pixels.stat().st_mtime_ns == before
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match='expected a cache with fit'):
        cache_faces(root, tmp_path / 'cache', 32, 'similarity')


def test_both_layouts_give_the_same_squares(lists: Path, sets: Path, data, tmp_path: Path):
    later = cache_faces(sets, tmp_path / 'later', 32, progress=False)
    first = CachedImages(lists / 'rbvae-cache/affine-32/faces')
    by_number = {Path(name).name.partition('.')[0]: i for i, name in enumerate(first.names)}
    for i, name in enumerate(later.names[:30]):
        assert (later[i].float() - first[by_number[Path(name).stem]].float()).abs().mean() < 1


def test_a_copy_that_is_too_small_is_refused_before_anything_is_decoded(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, 'read_face', lambda *_, **__: pytest.fail('decoded'))
    root = written_lists(tmp_path / 'copy', 40)
    says = '^expected at least 80 faces of each of seven expressions, got 5 of happiness; take a larger part'
    with pytest.raises(ValueError, match=says): affectnet(32, root, progress=False)
    none = written_lists(tmp_path / 'none', 0)
    with pytest.raises(ValueError, match='got none that can be used'): affectnet(32, none, progress=False)


# Splits

def test_splits_are_apart_and_complete(data):
    """Every face is in one place: by its rows, and by its pixels."""
    unlabelled, reference = data.sets.unlabelled, data.sets.reference
    both = np.concatenate([unlabelled.rows, reference.rows])
    assert len(np.unique(both)) == len(both) == N - len(data.fit) - len(data.test)
    parts = squares(unlabelled), squares(reference), data.fit.images, data.test.images
    assert sorted(np.concatenate([numbers(part) for part in parts])) == list(range(N))


def test_splits_have_seven_expressions_and_no_neutral_one(data):
    assert len(data.fit) == len(data.test) == 7 * 20
    for split in (data.fit, data.test):
        names, counts = np.unique(split.factors['expression'], return_counts=True)
        assert set(names) == set(EXPRESSIONS) == set(BY_CODE[1:]) and set(counts) == {20}
        assert len(np.unique(split.factors['expression'][:21])) > 3  # in random order
        assert split.identity == 'pose' and set(split.labels) == set(POSES)


def test_labels_are_those_of_their_images(data):
    """Expression and pose, by which photographs they are; the thirds of all heads from the left to the right."""
    across = [complex(*(points[42:48].mean(0) - points[36:42].mean(0))) for points in map(landmarks, range(N))]
    jaw, chin, nose = (np.array([(complex(*landmarks(i)[k]) / across[i]).real for i in range(N)]) for k in (0, 16, 30))
    place = ((nose - jaw) / (chin - jaw)).argsort().argsort() * 3 // N
    for split in (data.fit, data.test):
        shown = numbers(split.images)
        assert [BY_CODE[i % 8] for i in shown] == split.factors['expression'].tolist()
        assert [('left', 'ahead', 'right')[place[i]] for i in shown] == split.labels.tolist()


def test_neutral_faces_are_reference_and_unlabelled(data):
    """Half of them each, where the copy's own label is taken; by the photographs themselves."""
    reference, unlabelled = (numbers(squares(part)) % 8 for part in (data.sets.reference, data.sets.unlabelled))
    assert set(reference) == {0} and len(reference) == 40
    assert (unlabelled == 0).sum() == 41 and set(unlabelled) == set(range(8))


def test_the_papers_numbers():
    codes = np.repeat(np.arange(8), [80_000, 130_000, 25_000, 14_000, 6_000, 4_000, 25_000, 3_900])
    rows = split_rows(codes, np.random.default_rng(0), own_reference=True)
    assert [len(rows[name]) for name in ('unlabelled', 'reference', 'fit', 'test')] == [150_000, 10_000, 3500, 3500]
    assert n_each(np.array([0, *[1200] * 7])) == 300 and len(set(np.concatenate([*rows.values()]))) == 167_000


def test_a_seed_decides(lists: Path, data):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        same, other = (affectnet(32, lists, seed=seed, progress=False) for seed in (0, 1))
    assert same.test.images.equal(data.test.images) and same.sets.fingerprint() == data.sets.fingerprint()
    assert not other.test.images.equal(data.test.images) and other.sets.fingerprint() != data.sets.fingerprint()
    x_u, x_r = data.sets.batch(5, torch.Generator().manual_seed(0))
    assert x_u.shape == x_r.shape == (5, 3, 32, 32)


def test_published_numbers_are_errors():
    """Those of the paper's Table 1, where shares of correct answers stand."""
    correct = dict(vae=.383, dip_vae_1=.388, dip_vae_2=.386, beta_vae=.384, svae=.384, beta_tcvae=.390, mathieu=.395,
                   rbvae=.392, srbvae=.422)
    assert {name: round(1 - share, 3) for name, share in correct.items()} == PUBLISHED


# The reference set

def test_reference_from_a_folder_of_cropped_faces(sets: Path, tmp_path: Path):
    (tmp_path / 'neutral').mkdir()
    for i in range(5): cv2.imwrite(str(tmp_path / f'neutral/{i}.png'), np.full((32, 32, 3), 10 * i, np.uint8))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        own = affectnet(32, sets, tmp_path / 'neutral', cache=tmp_path / 'cache', progress=False)
    assert len(own.sets.reference) == 5 and len(own.sets.unlabelled) == N - 2 * 140
    values = {int(own.sets.reference[i].unique().item()) for i in range(5)}
    assert values == {0, 10, 20, 30, 40}


def numbers_of(image: np.ndarray) -> int:  # (H, W, 3) uint8, red first
    return int(numbers(torch.from_numpy(image).permute(2, 0, 1)[None])[0])


def looked_up(image: np.ndarray) -> np.ndarray: return landmarks(numbers_of(image))


def test_reference_found_in_the_copy_and_aligned(tmp_path: Path):
    root = written_sets(tmp_path / 'copy')
    (root / 'reference').mkdir()
    for i in range(0, 48, 8): cv2.imwrite(str(root / f'reference/{i}.png'), photograph(i))
    (root / 'reference/notes.txt').write_text('no image')
    def detect(image: np.ndarray) -> np.ndarray | None: return looked_up(image) if numbers_of(image) else None
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        own = affectnet(32, root, detect=detect, progress=False)
    assert sorted(own.sets.reference.images.names) == ['16.png', '24.png', '32.png', '40.png', '8.png']
    skipped = own.sets.reference.images.skipped
    assert skipped == {'notes.txt': 'not an image', '0.png': 'no face was found'}
    cached, reference = CachedImages(root / 'rbvae-cache/affine-32/faces'), own.sets.reference.images
    same, drawn = cached[cached.names.index('train_set/images/8.jpg')], reference[reference.names.index('8.png')]
    assert (same.float() - drawn.float()).abs().mean() < 2
    assert np.abs(middle_of_dot(same) - middle_of_dot(drawn)).max() < .1


@pytest.mark.parametrize('arguments, says', [
    (dict(source=''), '^expected the folder of your copy of AffectNet, got none; give --root DIR'),
    (dict(source='{}', kind='shear'), 'expected kind as one of'),
    (dict(source='{}', image_size=4), 'at least 8 pixels'),
    (dict(source='{}', reference='{}', detect='dlib'), "detect as True, False or a function, got 'dlib'"),
    (dict(source='{}', detect=looked_up), 'expected a folder of photographs for --detect, got none'),
    (dict(source='{}', reference='nowhere'), 'expected a folder with images, found none at'),
    (dict(source='nowhere'), 'expected a folder with AffectNet')])
def test_arguments_that_cannot_be(arguments: dict, says: str, lists: Path, tmp_path: Path):
    filled = {key: value.format(lists) if isinstance(value, str) else value for key, value in arguments.items()}
    with pytest.raises((ValueError, OSError), match=says):
        affectnet(**dict(image_size=32, cache=tmp_path, progress=False) | filled)


def test_another_cache_is_no_cache_of_faces(lists: Path, tmp_path: Path, data):
    shutil.copytree(lists / 'rbvae-cache', tmp_path / 'cache')
    index = tmp_path / 'cache/affine-32/faces/index.json'
    index.write_text(index.read_text().replace('"expression"', '"expressions"'))
    with pytest.raises(ValueError, match='^expected a cache of AffectNet in .* no expressions; delete that folder'):
        affectnet(32, lists, cache=tmp_path / 'cache', progress=False)


def test_chosen_rows(data):
    cached = data.sets.unlabelled.images
    some = Chosen(cached, np.array([5, 2]))
    assert len(some) == 2 and some[1].equal(cached[2]) and some.__getitems__([1, 0])[1].equal(cached[5])
    assert some.fingerprint() != Chosen(cached, np.array([2, 5])).fingerprint()


# The command

def test_by_name_and_root(lists: Path, data):
    with pytest.warns(UserWarning, match='--reference DIR'):
        found = find_experiment(f'affectnet:{lists}')(image_size=32)
    assert found.test.images.equal(data.test.images) and found.test.labels.tolist() == data.test.labels.tolist()


@pytest.fixture
def library(monkeypatch) -> list:
    """In place of face-alignment, whose weights cannot be had here: its interface, and landmarks that are looked up."""
    made = []
    class FaceAlignment:
        def __init__(self, kind, **options): made.append(options['device'])
        def get_landmarks_from_image(self, image): return None if numbers_of(image) == 16 else [looked_up(image)]
    known = types.SimpleNamespace(FaceAlignment=FaceAlignment, LandmarksType=types.SimpleNamespace(TWO_D='2-D'))
    monkeypatch.setitem(sys.modules, 'face_alignment', known)
    return made


def test_demo_of_affectnet(lists: Path, data, tmp_path: Path, capsys):
    """With the copy's own neutral faces, and a sentence on that."""
    command = ['demo', '--out', str(tmp_path / 'x'), '--data', 'affectnet', '--root', str(lists), '--steps', '2']
    with pytest.warns(UserWarning, match='own neutral faces'): assert cli.main([*command, '--device', 'cpu']) == 0
    assert 'expressions' in (said := capsys.readouterr().out) and 'pose at chance' in said


def test_table_of_affectnet(lists: Path, data, library: list, neutral: Path, tmp_path: Path, capsys):
    """With photographs for reference, and a quick classifier, which the folder of a sweep would otherwise train."""
    save_classifier(train_classifier(data.fit, steps=3, device='cpu'), tmp_path / 'out/classifier.safetensors')
    command = ['table', '--out', str(tmp_path / 'out'), '--data', 'affectnet', '--root', str(lists), '--methods',
               'rbvae', '--seeds', '0', '--steps', '2', '--device', 'cpu', '--cache', str(tmp_path / 'cache'),
               '--reference', str(neutral), '--detect']
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert '.608' in said and 'expression' in said and 'pose from z' in said
    assert '9 reference faces\n  left out 1: no face was found\n' in said and library == ['cpu']
    rows = read_rows(tmp_path / 'out/table.csv')
    assert set(rows.status) == {'done'} and {'expression', 'target', 'identity', 'score'} == set(rows.factor)
    about = json.loads((tmp_path / 'out/sweep.json').read_text())
    assert (about['reference'], about['detect'], 'cache' in about) == (str(neutral), True, False)
    with pytest.warns(UserWarning, match='neutral'):  # the same folder with the copy's own label
        assert cli.main(command[:-3]) == 1
    assert f"reference: here None, there '{neutral}'" in capsys.readouterr().err


@pytest.mark.parametrize('detect', [True, False])
def test_reference_by_options(detect: bool, lists: Path, data, library: list, neutral: Path, tmp_path: Path):
    """As the command asks for them: aligned as the copy's faces are, or taken as they come; each has its own cache."""
    options = dict(reference=str(neutral), detect=detect, cache=str(tmp_path / 'cache'))
    found = find_experiment(f'affectnet:{lists}', **options)(image_size=32, progress=False)
    reference, copy = found.sets.reference, found.sets.unlabelled.images
    assert sorted(numbers(squares(reference))) == [i for i in range(0, 80, 8) if i != 16 or not detect]
    name = {i: name for name, i in zip(copy.names, numbers(squares(copy)))}
    far = [np.abs(middle_of_dot(reference[k]) - middle_of_dot(copy[copy.names.index(name[i])])).max()
           for k, i in enumerate(numbers(squares(reference)))]
    assert max(far) < .1 if detect else max(far) > 1
    other = find_experiment(f'affectnet:{lists}', **options | dict(detect=not detect))(image_size=32, progress=False)
    assert other.sets.reference.images.pixels != reference.images.pixels


@pytest.mark.parametrize('found, reason', [
    (None, 'no face was found'), (landmarks(8) / 60, 'landmarks that are no face: all in one place or line'),
    (landmarks(8) + 60, 'landmarks outside of the image'), (landmarks(8)[:5], 'expected 68 landmarks (x, y)'),
    (landmarks(8) * np.nan, 'expected finite landmarks'), (landmarks(8).T, 'expected 68 landmarks (x, y)'),
    (np.stack([landmarks(8)] * 2), 'another number of landmarks than 68: 136')])
def test_what_a_detector_finds_is_checked(found, reason: str, neutral: Path):
    square = read_detected(neutral / '8.png', lambda image: found, mean_shape(landmarks(0)[None]), size=32)
    assert isinstance(square, str) and square.startswith(reason)


@pytest.mark.parametrize('command', ['demo', 'table'])
@pytest.mark.parametrize('more, says', [
    (['affectnet', '--root', '{lists}', '--detect'], 'expected a folder of photographs for --detect, got none'),
    (['affectnet', '--root', '{lists}', '--reference', 'nowhere'], "expected a folder with images, found none at 'now"),
    (['affectnet', '--root', '{lists}', '--reference', '{lists}', '--detect'], 'expected face-alignment; install'),
    (['affectnet', '--root', '{empty}'], 'expected AffectNet in '),
    (['affectnet'], 'expected the folder of your copy of AffectNet, got none; give --root DIR'),
    (['affectnet', '--reference', '{empty}'], 'expected the folder of your copy of AffectNet, got none'),
    (['digit_styles', '--reference', '{lists}'], "expected 'digit_styles' without 'reference', which it does not take"),
    (['drawn_faces', '--detect'], "expected 'drawn_faces' without 'detect', which it does not take, got True"),
    (['turned_shapes', '--root', 'y'], "expected 'turned_shapes' alone")])
def test_wrong_doors_are_one_sentence(command: str, more: list, says: str, lists: Path, tmp_path: Path, monkeypatch,
                                      capsys):
    """Before a photograph is decoded, or anything is written."""
    monkeypatch.setitem(sys.modules, 'face_alignment', None)
    monkeypatch.setattr(module, 'read_face', lambda *_, **__: pytest.fail('decoded'))
    (tmp_path / 'empty').mkdir()
    filled = [text.format(lists=lists, empty=tmp_path / 'empty') for text in more]
    assert cli.main([command, '--out', str(tmp_path / 'x'), '--data', *filled]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f'rbvae: {says}') and said.count('\n') == 1 and not [*tmp_path.glob('x/*')]


@pytest.mark.parametrize('command', ['demo', 'table'])
def test_help_names_the_doors(command: str, capsys):
    with pytest.raises(SystemExit, match='0'): cli.main([command, '--help'])
    said = ' '.join(capsys.readouterr().out.split())
    doors = '--root', '--reference', '--detect', '--cache', 'pip install "rbvae-nb[landmarks]"'
    assert [door for door in doors if door not in said] == []

"""A run killed with SIGKILL and resumed ends with the same weights as one that was not."""
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rbvae_nb.files import load_tensors

RUN = '''
import sys, torch
from rbvae_nb.shapes import turned_shapes
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import train
torch.set_num_threads(1)
model, recipe = SRbVAE.preset('small', seed=3, pretraining=3 / 20, ramp=.1)  # the kill falls into the adversarial part
recipe |= dict(steps=20, batch_size=8)
data = turned_shapes(n=400)
train(model, data.sets, **recipe, device='cpu', out=sys.argv[1], checkpoint_every=5, progress=False)
'''


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-c', RUN, str(folder)])


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='this system has no SIGKILL')
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path):
    assert start(tmp_path / 'whole').wait() == 0
    victim, checkpoint = start(tmp_path / 'cut'), tmp_path / 'cut' / 'checkpoint.safetensors'
    while not checkpoint.exists():
        assert victim.poll() is None, 'ended before its first checkpoint'
        time.sleep(.01)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    reached = load_tensors(checkpoint)[1]['step']
    assert 0 < reached < 20, 'the kill came too late to test anything'
    assert start(tmp_path / 'cut').wait() == 0
    whole, cut = (load_tensors(tmp_path / name / 'checkpoint.safetensors') for name in ('whole', 'cut'))
    assert cut[1]['step'] == whole[1]['step'] == 20
    assert whole[0].keys() == cut[0].keys()
    assert all(whole[0][k].equal(cut[0][k]) for k in whole[0])

"""Train the judge of the package on the whole of MNIST and test it: `python nbs/judge.py FOLDER`, where FOLDER holds MNIST/raw.

Writes rbvae_nb/weights/judge.safetensors and assets/judge.csv: what it gets right on the test fold of `digit_styles`,
whose digits are of MNIST's test images.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from rbvae_nb.digits import FACTORS, digit_styles, load_digits
from rbvae_nb.judging import train_judge
from rbvae_nb.vae import save_tensors

NBS = Path(__file__).resolve().parent


def main(folder: str) -> None:
    """Train, test, save as float16."""
    judge = train_judge(load_digits(folder))
    save_tensors(NBS.parent / 'rbvae_nb' / 'weights' / 'judge.safetensors', {k: v.half() for k, v in judge.state_dict().items()}, dict(trained_on='MNIST, 60,000 training digits'))
    test = digit_styles().test
    digit, style = judge.measure(test.images)
    row = {'images': len(digit), 'digit': (digit == test.digit).mean()} | dict(zip(FACTORS, np.abs(style - test.style).mean(0)))
    pd.DataFrame([row]).round(4).to_csv(NBS / 'assets' / 'judge.csv', index=False)


if __name__ == '__main__': main(sys.argv[1])

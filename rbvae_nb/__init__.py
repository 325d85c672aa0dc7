"""Reference-based disentangling: everything that is used from outside, loaded when it is asked for."""
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:  # what type checkers and editors see; `_WHERE` says the same to Python
    from .alignment import align as align
    from .alignment import mean_shape as mean_shape
    from .baselines import SVAE as SVAE
    from .baselines import BetaTCVAE as BetaTCVAE
    from .baselines import DIPVAE1 as DIPVAE1
    from .baselines import DIPVAE2 as DIPVAE2
    from .baselines import Mathieu as Mathieu
    from .digits import digit_styles as digit_styles
    from .estimator import ReferenceDisentangler as ReferenceDisentangler
    from .experiments import EXPERIMENTS as EXPERIMENTS
    from .experiments import Experiment as Experiment
    from .experiments import Split as Split
    from .explorer import explore as explore
    from .faces import drawn_faces as drawn_faces
    from .folders import folder_sets as folder_sets
    from .folders import list_images as list_images
    from .folders import read_image as read_image
    from .images import ImageGrid as ImageGrid
    from .images import ImageSets as ImageSets
    from .methods import METHODS as METHODS
    from .methods import Method as Method
    from .methods import load as load
    from .probing import probe as probe
    from .rbvae import RbVAE as RbVAE
    from .rbvae import compare as compare
    from .related import CVAE as CVAE
    from .related import MMCVAE as MMCVAE
    from .runs import train_folders as train_folders
    from .shapes import turned_shapes as turned_shapes
    from .srbvae import SRbVAE as SRbVAE
    from .synthesis import attribute_transfer as attribute_transfer
    from .synthesis import conditional_synthesis as conditional_synthesis
    from .synthesis import interpolate as interpolate
    from .synthesis import sample_panels as sample_panels
    from .synthesis import save_film as save_film
    from .table import run_table as run_table
    from .training import train as train
    from .vae import VAE as VAE
    from .vae import BetaVAE as BetaVAE

_WHERE = {  # module: names
    'alignment': ['align', 'mean_shape'],
    'baselines': ['BetaTCVAE', 'DIPVAE1', 'DIPVAE2', 'Mathieu', 'SVAE'],
    'digits': ['digit_styles'],
    'estimator': ['ReferenceDisentangler'],
    'experiments': ['EXPERIMENTS', 'Experiment', 'Split'],
    'explorer': ['explore'],
    'faces': ['drawn_faces'],
    'folders': ['folder_sets', 'list_images', 'read_image'],
    'images': ['ImageGrid', 'ImageSets'],
    'methods': ['METHODS', 'Method', 'load'],
    'probing': ['probe'],
    'rbvae': ['RbVAE', 'compare'],
    'related': ['CVAE', 'MMCVAE'],
    'runs': ['train_folders'],
    'shapes': ['turned_shapes'],
    'srbvae': ['SRbVAE'],
    'synthesis': ['attribute_transfer', 'conditional_synthesis', 'interpolate', 'sample_panels', 'save_film'],
    'table': ['run_table'],
    'training': ['train'],
    'vae': ['BetaVAE', 'VAE'],
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str):
    """Import a name's module when the name is first used (PEP 562), so that `import rbvae_nb` stays light."""
    if name not in _MODULE_OF: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'.{_MODULE_OF[name]}', __name__), name)


def __dir__() -> list[str]:
    """What there is, for completion."""
    return sorted([*globals(), *__all__])

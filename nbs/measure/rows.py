"""Tables of rows in CSV files beside these scripts, which several runs may fill at once."""
import tempfile
from pathlib import Path

import pandas as pd
from filelock import FileLock
from pandas.api.types import is_numeric_dtype


def put_rows(found: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Put rows into a table by their index, in place of older ones with the same; the whole table, sorted."""
    keys = found.index.to_frame()
    as_text = {name: str for name in keys if not is_numeric_dtype(keys[name])}
    place = results.resolve().as_posix().replace('/', '-')
    with FileLock(Path(tempfile.gettempdir()) / f'{place}.lock'):
        before = [pd.read_csv(results, index_col=list(keys), dtype=as_text, na_values=[''], keep_default_na=False)
                  ] if results.exists() else []
        every = pd.concat([*before, found])
        every = every[~every.index.duplicated(keep='last')].sort_index()
        every.to_csv(results)
    return every


def rounded(found: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """Numbers with so many digits after the point; texts as they are."""
    return found.map(lambda v: v if isinstance(v, (str, int)) else round(float(v), digits))

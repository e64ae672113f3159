"""The demo's picture: a field before and after, and the error between them."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from .files import write_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_MISSING = "#8f8a80"
_INK = "#333333"


def draw(path: Path, original: NDArray[np.generic], restored: NDArray[np.generic], eb: float, title: str, label: str) -> None:
    """Write a PNG: original and reconstruction in one colour scale, the error map, and the histogram of errors.

    Parameters
    ----------
    path : Path
    original, restored : array, shape (y, x), float
        Not-a-number elements are drawn in grey.
    eb : float
        Absolute bound: the scale of the error map, and the lines in the histogram.
    title, label : str
        Of the picture; of the colour scale.
    """
    import numpy as np
    from matplotlib import colormaps, rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    error = restored.astype(np.float64) - original.astype(np.float64)
    finite = error[np.isfinite(error)]
    style: dict[Any, Any] = {"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.edgecolor": _INK}
    with rc_context({**style, "text.color": _INK, "savefig.dpi": "figure"}):
        figure = Figure(figsize=(10, 8), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        figure.suptitle(title, fontsize=11)
        grid = figure.subplots(2, 2)
        viridis = colormaps["viridis"].with_extremes(bad=_MISSING)
        low, high = float(np.nanmin(original)), float(np.nanmax(original))
        _map(grid[0, 0], original, viridis, low, high, "original", label)
        _map(grid[0, 1], restored, viridis, low, high, "reconstruction", label)
        _map(
            grid[1, 0],
            error / eb,
            colormaps["RdBu_r"].with_extremes(bad=_MISSING),
            -1.0,
            1.0,
            "error map (grey: no value)",
            "error / bound",
        )
        _histogram(grid[1, 1], finite / eb)
        canvas.draw()
        # an error map looks like noise and compresses like it: a palette makes the file half as large
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()).quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    buffer = BytesIO()
    picture.save(buffer, format="png", optimize=True)
    write_bytes(path, buffer.getvalue())


def _map(axes: Any, values: NDArray[np.generic], colours: Any, low: float, high: float, name: str, label: str) -> None:
    axes.set_title(name)
    axes.set_xticks([])
    axes.set_yticks([])
    shown = axes.imshow(values, origin="lower", cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.figure.colorbar(shown, ax=axes, label=label, shrink=0.92, pad=0.02)


def _histogram(axes: Any, errors: NDArray[np.float64]) -> None:
    import numpy as np

    axes.hist(errors, bins=np.linspace(-1.25, 1.25, 101), color="#4c78a8")
    for side in (-1, 1):
        axes.axvline(side, color="#c0392b", linewidth=1.4)
    top = axes.get_ylim()[1] * 1.12
    axes.set_ylim(0, top)
    axes.text(-0.97, top * 0.97, "-bound", color="#c0392b", va="top")
    axes.text(0.97, top * 0.97, "+bound", color="#c0392b", va="top", ha="right")
    axes.set_xlim(-1.25, 1.25)
    axes.set_title(f"errors of {errors.size:,} values; largest {np.abs(errors).max():.4f} of the bound")
    axes.set_xlabel("error / bound")
    axes.set_ylabel("values")
    axes.spines[["top", "right"]].set_visible(False)

"""Archives that a release keeps: written once, read by every later one, and told of where they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from briquette_conformance import base, running
from briquette_conformance.frozen import freeze

PACK = "briquette-bitpack"


def test_archives_are_kept_and_held_to(tmp_path: Path) -> None:
    ctx = running.context(PACK, base.Options(frozen=tmp_path), ["plain-rate"])
    written = freeze(ctx, tmp_path)
    assert [path.name for path in written] == ["plain-rate-0.brq", "plain-rate-1.brq"]
    held = written[0].read_bytes()
    assert not freeze(ctx, tmp_path)
    assert written[0].read_bytes() == held
    (found,) = running.findings_of(base.CHECKS["frozen archives"], ctx, None)
    assert found.status == "proven"
    expected = np.load(written[0].with_suffix(".npy"))
    expected[7] += 1
    np.save(written[0].with_suffix(".npy"), expected)
    (found,) = running.findings_of(base.CHECKS["frozen archives"], ctx, None)
    assert found.status == "failed"
    assert "plain-rate-0.brq on numpy decodes to other values: 1 of" in found.detail
    written[1].with_suffix(".npy").unlink()
    np.save(written[0].with_suffix(".npy"), expected - np.eye(1, expected.size, 7, expected.dtype)[0])
    (found,) = running.findings_of(base.CHECKS["frozen archives"], ctx, None)
    assert "plain-rate-1.brq has no plain-rate-1.npy beside it" in found.detail


def test_archives_of_something_else_prove_nothing(tmp_path: Path) -> None:
    freeze(running.context(PACK, base.Options(), ["plain-rate"]), tmp_path)
    other = running.context(PACK, base.Options(frozen=tmp_path), ["outlier"])
    (found,) = running.findings_of(base.CHECKS["frozen archives"], other, None)
    assert found.status == "failed"
    assert "none of the 2 archives" in found.detail
    assert "holds outlier" in found.detail

"""Wrong packs: what is planted in a correct one, which check must find it first, and what the message must say."""

from __future__ import annotations

from dataclasses import dataclass

from pack_site import Edit


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes
    ----------
    name, pack, stage : str
        `stage` empty: the pack as a whole is looked at.
    edits : tuple of Edit
    check : str
        The check that finds it.
    says : str
        A regular expression that the message matches.
    options : tuple of str
        Of ``briquette check``, beside ``--fail-fast``.
    """

    name: str
    pack: str
    stage: str
    edits: tuple[Edit, ...]
    check: str
    says: str
    options: tuple[str, ...] = ()


_DIFFERENCE = "acme_difference2/difference2.py"
_DIFFERENCE_CUH = "acme_difference2/cuda/difference2.cuh"
_CODER, _CODER_CUH = "acme_coder/coder.py", "acme_coder/cuda/byte_coder.cuh"
_QUANTIZER, _QUANTIZER_CUH = "acme_coder/quantizer.py", "acme_coder/cuda/power2_quantizer.cuh"
_MASK, _MASK_CUH, _SWAP_CUH = "acme_roles/mask.py", "acme_roles/cuda/mask.cuh", "acme_roles/cuda/swap.cuh"
_STAGE_LINE = 'difference2 = "acme_difference2.difference2:Difference2"'

FAULTS = (
    Fault(
        "wrong inverse",
        "acme-difference2",
        "difference2",
        ((_DIFFERENCE, "for _ in range(2):", "for _ in range(1):"),),
        "inverse",
        r"the inverse does not undo forward.*the first at \d+",
    ),
    Fault(
        "off by one in the last partial span",
        "acme-difference2",
        "difference2",
        (
            (
                _DIFFERENCE,
                '        return rows.reshape(-1)[: scope.count].view(scope.types["in"].numpy)',
                "        out = rows.reshape(-1)[: scope.count].copy()\n"
                "        out[scope.count - scope.count % self.region :][-1:] += 1\n"
                '        return out.view(scope.types["in"].numpy)',
            ),
        ),
        "partial spans",
        r"the last span of 128 holds \d+",
        ("--only", "inverse", "--only", "partial spans"),
    ),
    Fault(
        "REGION_LOCAL that reads across regions",
        "acme-difference2",
        "difference2",
        (
            (
                _DIFFERENCE,
                'return {"out": self._stream(np.diff(rows, 2, axis=1, prepend=before), scope)}',
                "flat = rows.reshape(-1)\n        once = np.diff(flat, prepend=flat.dtype.type(0))\n"
                '        return {"out": self._stream(np.diff(once, prepend=flat.dtype.type(0)).reshape(rows.shape), scope)}',
            ),
            (
                _DIFFERENCE,
                "            rows = np.cumsum(rows, axis=1, dtype=rows.dtype)",
                "            rows = np.cumsum(rows.reshape(-1), dtype=rows.dtype).reshape(rows.shape)",
            ),
        ),
        "role",
        r"declared REGION_LOCAL over 128 elements, and forward reads across",
    ),
    Fault(
        "ELEMENTWISE that looks at a neighbour",
        "acme-roles",
        "acme-mask",
        (
            (
                _MASK,
                '        return {"out": codes ^ codes.dtype.type(self.mask)}',
                '        return {"out": np.bitwise_xor.accumulate(codes)}',
            ),
            (
                _MASK,
                '        return {"in": codes ^ codes.dtype.type(self.mask)}',
                '        return {"in": np.concatenate([codes[:1], codes[1:] ^ codes[:-1]])}',
            ),
        ),
        "role",
        r"declared ELEMENTWISE, and forward looks at neighbours: changing element \d+ changes",
    ),
    Fault(
        "parameter struct unlike the header",
        "acme-coder",
        "power2-quantizer",
        ((_QUANTIZER_CUH, "    float step, inverse, bound;", "    float inverse, step, bound;"),),
        "identity",
        r"Power2Quantizer: field (step|inverse) differs from the declaration",
    ),
    Fault(
        "forgotten priming",
        "acme-coder",
        "power2-quantizer",
        (
            (
                _QUANTIZER,
                "        eb = ctx.absolute_bound()\n",
                "        eb = 0.5  # of no run in particular\n",
            ),
        ),
        "inverse",
        r"miss the bound.*must be resolved by prime_fused_forward_state",
    ),
    Fault(
        "cost that disagrees with pack",
        "acme-coder",
        "byte-coder",
        (
            (
                _CODER,
                "    def _center(self",
                "    def cost(self, codes: NDArray[Any], scope: Scope) -> NDArray[np.int64]:\n"
                "        rows = np.pad(codes, (0, -codes.size % _SEGMENT)).reshape(-1, _SEGMENT)\n"
                "        return np.full(len(rows), _SEGMENT // 4, np.int64) * rows.any(axis=1)\n\n    def _center(self",
            ),
        ),
        "cost and room",
        r"cost says \d+ words for segment \d+ of .*, forward makes \d+",
    ),
    Fault(
        "missing barrier",
        "acme-roles",
        "acme-swap",
        ((_SWAP_CUH, "    g.sync();\n", ""),),
        "races",
        r"data race in <acme_roles/cuda/swap.cuh>, line \d+",
        ("--only", "inverse", "--only", "races"),
    ),
    Fault(
        "shared-memory race",
        "acme-roles",
        "acme-swap",
        (
            (
                _SWAP_CUH,
                "      out[2 * k + 1] = held;",
                "      if (k + 1 < bytes / 2) out[2 * k + 2] = uint8_t(k);  // the next lane's\n      out[2 * k + 1] = held;",
            ),
        ),
        "races",
        r"data race in <acme_roles/cuda/swap.cuh>, line \d+",
        ("--only", "inverse", "--only", "races"),
    ),
    Fault(
        "write past the segment",
        "acme-coder",
        "byte-coder",
        (
            (
                _CODER_CUH,
                "b < at.width; b++) to[b]",
                "b < at.width + (at.width && g.rank() == G::size - 1 && m == E - 1); b++) to[b]",
            ),
        ),
        "geometries",
        r"ByteCoder.*writes past segment \d+, which its size says has \d+ words: pack in <acme_coder/cuda/byte_coder.cuh>",
        ("--only", "inverse", "--only", "geometries"),
    ),
    Fault(
        "non-deterministic output",
        "acme-roles",
        "acme-sum",
        (
            (
                "acme_roles/sums.py",
                '        codes: Any = np.asarray(inputs["in"])\n',
                '        codes: Any = np.array(inputs["in"])\n'
                "        codes[codes.size // 2 :][:1] = np.random.default_rng().integers(0, 99)\n",
            ),
            (
                "acme_roles/sums.py",
                "    def output_types(",
                "    def replaced_code(self, dtype: str) -> int:\n        return 0\n\n    def output_types(",
            ),
        ),
        "determinism",
        r"not deterministic",
        ("--only", "determinism"),
    ),
    Fault(
        "oracle and policy that round differently",
        "acme-coder",
        "power2-quantizer",
        ((_QUANTIZER_CUH, "rintf(x * p.inverse)", "floorf(x * p.inverse + 0.5f)"),),
        "identity",
        r"policy and NumPy form of power2-quantizer disagree.*elements differ: .*the first at \d+",
    ),
    Fault(
        "float contraction",
        "acme-coder",
        "power2-quantizer",
        ((_QUANTIZER_CUH, "fabsf(x - q * p.step)", "fabsf(fmaf(-q, p.step, x))"),),
        "policy text",
        r"<acme_coder/cuda/power2_quantizer.cuh>, line \d+: the policy calls fmaf\(.*contraction",
    ),
    Fault(
        "state kept in the stage object",
        "acme-coder",
        "power2-quantizer",
        (
            (
                _QUANTIZER,
                "        eb = ctx.absolute_bound()\n",
                "        eb = ctx.absolute_bound()\n        object.__setattr__(self, 'eb', eb)\n",
            ),
        ),
        "state",
        r"a run changes the stage object: eb; what a run resolves goes to its state",
    ),
    Fault(
        "state kept in the module",
        "acme-coder",
        "power2-quantizer",
        (
            (_QUANTIZER, "Final = np.float32(2147483520.0)\n", "Final = np.float32(2147483520.0)\n_STEP = {}\n"),
            (
                _QUANTIZER,
                "        eb, step, fill = state",
                "        _STEP['last'] = state.get(\"quant_step\")\n        eb, step, fill = state",
            ),
            (
                _QUANTIZER,
                '            values = codes.astype(np.float32) * np.float32(self._params(scope.state)["step"])',
                "            values = codes.astype(np.float32) * np.float32(_STEP['last'])",
            ),
        ),
        "state",
        r"something outlives a run in the stage or its module",
    ),
    Fault(
        "undeclared side output",
        "acme-coder",
        "power2-quantizer",
        ((_QUANTIZER, '        return ("outliers",)', "        return ()"),),
        "declaration",
        r"its output outliers is not in fused_aux_outputs\(\): an undeclared side output is a barrier",
    ),
    Fault(
        "inverse eligibility wider than forward",
        "acme-difference2",
        "difference2",
        (
            (
                _DIFFERENCE,
                '        return FusedOp("warp-register", "Difference2", "acme_difference2/cuda/difference2.cuh")',
                '        header = "acme_difference2/cuda/difference2.cuh"\n'
                '        return FusedOp("warp-register", "Difference2", header, dtypes=("int32",))\n\n'
                "    def inverse_fused_op(self) -> FusedOp:\n"
                '        return FusedOp("warp-register", "Difference2", "acme_difference2/cuda/difference2.cuh")',
            ),
        ),
        "declaration",
        r"the inverse policy is eligible for int64, uint16, the forward one for int32 only",
    ),
    Fault(
        "entry point that raises",
        "acme-difference2",
        "",
        (
            (
                _DIFFERENCE,
                "from collections.abc import Mapping\n",
                "from collections.abc import Mapping\nraise RuntimeError('no licence')\n",
            ),
        ),
        "loads",
        r"broken: .*stage 'difference2'.*no licence",
    ),
    Fault(
        "duplicate stage name",
        "acme-difference2",
        "",
        (
            ("pyproject.toml", _STAGE_LINE, 'lorenzo-1d = "acme_difference2.difference2:Difference2"'),
            (_DIFFERENCE, 'name: ClassVar[str] = "difference2"', 'name: ClassVar[str] = "lorenzo-1d"'),
        ),
        "loads",
        r"stage 'lorenzo-1d' is also registered by briquette-lorenzo",
    ),
    Fault(
        "API range from the future",
        "acme-difference2",
        "",
        (("acme_difference2/__init__.py", 'policy_api=">=1,<2"', 'policy_api=">=7"'),),
        "loads",
        r"incompatible: it was written for policy_api >=7 \(this briquette has 1\)",
    ),
    Fault(
        "stage that cannot be pickled",
        "acme-roles",
        "acme-mask",
        (
            (
                _MASK,
                "    def output_types(",
                "    def __post_init__(self) -> None:\n        object.__setattr__(self, 'f', lambda: 0)\n\n    def output_types(",
            ),
        ),
        "pickle",
        r"cannot be pickled: .*keep nothing but parameters in it",
    ),
    Fault(
        "a class that is not frozen",
        "acme-roles",
        "acme-mask",
        ((_MASK, "@dataclass(frozen=True)", "@dataclass(unsafe_hash=True)"),),
        "declaration",
        r"class Mask is no frozen dataclass",
    ),
    Fault(
        "policy that names its geometry",
        "acme-roles",
        "acme-mask",
        ((_MASK_CUH, "c[m] = T(c[m] ^ T(p.mask))", "c[m] = T(c[m] ^ T(threadIdx.x < 4096 ? p.mask : 0))"),),
        "policy text",
        r"<acme_roles/cuda/mask.cuh>, line \d+: the policy names threadIdx",
    ),
    Fault(
        "policy that depends on the geometry",
        "acme-difference2",
        "difference2",
        ((_DIFFERENCE_CUH, "const T before = g.shift_up(c[E - 1], T(0));", "const T before = T(0);"),),
        "geometries",
        r"Difference2 of int32 at \d+x\d+ \(lanes x elements\) makes something else than at",
        ("--only", "inverse", "--only", "geometries"),
    ),
    Fault(
        "decoder that trusts its payload",
        "acme-coder",
        "byte-coder",
        ((_CODER, "if not sound or begin + _HALF * int(widths.sum(dtype=np.int64)) != data.size:", "if not sound and False:"),),
        "damage",
        r"damaged archive: .*(an inverse raises ArchiveError for damage|targets disagree)",
        ("--only", "damage"),
    ),
    Fault(
        "room that is too small",
        "acme-coder",
        "byte-coder",
        ((_CODER, "return -(-segments // 2) + segments * _SEGMENT * types", "return segments * _SEGMENT * types"),),
        "cost and room",
        r"a chunk of 'out' takes \d+ words, max_chunk_words says \d+",
    ),
    Fault(
        "header that is not there",
        "acme-roles",
        "acme-mask",
        ((_MASK, '"acme_roles/cuda/mask.cuh"', '"acme_roles/cuda/masks.cuh"'),),
        "policy text",
        r"the header of policy ::acme_roles::Mask cannot be had: .*masks.cuh",
    ),
)

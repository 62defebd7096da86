"""The oracles by name: which mixer each one speaks about, and how its arguments are laid out.

Every oracle takes arrays by name as (batch, seq_len, features), or (batch, seq_len) for scalars, and returns
(batch, seq_len, features) in float64. An adapter only changes layout, turns a decay into its logarithm and undoes a scaling
that upstream builds in. Upstream is called by keyword, because the order of arguments differs from function to function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from hybridseq.oracles.sources import Excerpt, OracleChanged, OracleMissing

MAMBA, FLA, TRANSFORMERS = ("mamba-ssm", "2.3.2.post1"), ("fla-core", "0.6.0"), ("transformers", "5.24.0")
QWEN3_NEXT = "transformers/models/qwen3_next/modeling_qwen3_next.py"
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
"""Allowed difference, relative to the largest output, by the precision in which upstream computes."""


@dataclass(frozen=True)
class Status:
    """One row of `available`: the oracle, its package, the mixer it speaks about, and whether it can run here.

    `status` is "ready", "not run here" (absent or another version) or "changed" (the text is not the pinned one).
    """

    oracle: str
    mixer: str
    distribution: str
    wanted: str
    installed: str | None
    status: str
    fix: str


@dataclass(frozen=True)
class Oracle:
    """A reference implementation by other people.

    Attributes:
        name: the upstream function. mixer: the mixer it computes, in the words of the catalogue of mixers.
        excerpt: where its text is. precision: in which it computes, "float32" or "float64".
        adapter: `adapter(functions, arrays) -> tensor (batch, seq_len, features)`.
    """

    name: str
    mixer: str
    excerpt: Excerpt
    precision: str
    adapter: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

    @property
    def tolerance(self) -> float:
        """Allowed difference relative to the largest output."""
        return TOLERANCE[self.precision]

    def status(self) -> Status:
        """Whether the oracle can run here; never raises."""
        found = self.excerpt.installed_version()
        try:
            self.excerpt.load()
            state, fix = "ready", ""
        except OracleMissing as error:
            state, fix = "not run here", str(error)
        except OracleChanged as error:
            state, fix = "changed", str(error)
        distribution, wanted = self.excerpt.distribution, self.excerpt.version
        return Status(f"{distribution} {self.name}", self.mixer, distribution, wanted, found, state, fix)

    def __call__(self, **arrays: np.ndarray) -> np.ndarray:
        """Run upstream's code on real arrays (batch, seq_len, features).

        Raises:
            OracleMissing: it cannot run here. OracleChanged: the installed text is not the pinned one.
        """
        functions = self.excerpt.load()
        import torch

        tensors = {name: torch.as_tensor(np.array(a, dtype=np.float64)) for name, a in arrays.items()}
        with torch.no_grad():
            return self.adapter(functions, tensors).to(torch.float64).numpy()


def _heads(x):
    """(batch, seq_len, ...) to (batch, seq_len, 1, ...): one head."""
    return x.unsqueeze(2)


def _heads_first(x):
    """(batch, seq_len, ...) to (batch, 1, seq_len, ...): one head."""
    return x.unsqueeze(1)


def _attention(window_in: str | None):
    def run(f, a):
        window = None if window_in is None else int(a[window_in])
        q, k, v = (_heads(a[n]) for n in "qkv")
        return f["naive_parallel_attn"](q=q, k=k, v=v, window_size=window)[0].squeeze(2)

    return run


def _linear_normalised(f, a):
    import torch.nn.functional as F

    q, k = (_heads(F.elu(a[n]) + 1) for n in "qk")
    return f["naive_recurrent_linear_attn"](q=q, k=k, v=_heads(a["v"]), scale=1.0, normalize=True)[0].squeeze(2)


def _linear_plain(f, a):
    q, k, v = (_heads(a[n]) for n in "qkv")
    return f["naive_recurrent_linear_attn"](q=q, k=k, v=v, scale=1.0)[0].squeeze(2)


def _taylor(f, a):
    return f["naive_parallel_based"](q=a["q"], k=a["k"], v=a["v"], scale=1.0, use_norm=True)


def _retention(f, a):
    q, k, v = (_heads_first(a[n]) for n in "qkv")
    return f["naive_retention"](q=q * q.shape[-1] ** 0.5, k=k, v=v).squeeze(1)  # the first head decays by 1 - 2^-5


def _gla(f, a):
    q, k, v = (_heads(a[n]) for n in "qkv")
    u, _ = f["naive_recurrent_gla"](q=q * q.shape[-1] ** 0.5, k=k, v=v, gk=_heads(a["alpha"].log()))
    return u.squeeze(2)


def _delta_rule(f, a):
    q, k, v, beta = (_heads_first(a[n]) for n in ("q", "k", "v", "beta"))
    return f["delta_rule_recurrence"](q=q * q.shape[-1] ** 0.5, k=k, v=v, beta=beta)[0].squeeze(1)


def _gated_delta(name: str, **options):
    def run(f, a):
        q, k, v, beta = (_heads(a[n]) for n in ("q", "k", "v", "beta"))
        return f[name](q=q, k=k, v=v, beta=beta, g=_heads(a["alpha"].log()), scale=1.0, **options)[0].squeeze(2)

    return run


def _qwen_delta(name: str, **options):
    def run(f, a):
        q, k, v, beta = (_heads(a[n]) for n in ("q", "k", "v", "beta"))
        g = _heads(a["alpha"].log())
        return f[name](query=q * q.shape[-1] ** 0.5, key=k, value=v, g=g, beta=beta, **options)[0].squeeze(2)

    return run


def _kda(f, a):
    q, k, v, beta = (_heads(a[n]) for n in ("q", "k", "v", "beta"))
    return f["naive_recurrent_kda"](q=q, k=k, v=v, g=_heads(a["alpha"].log()), beta=beta, scale=1.0)[0].squeeze(2)


def _rwkv7(f, a):
    # upstream casts all of its inputs but one, so they come in single precision
    r, w, k, v, kappa, rate = (_heads_first(a[n].float()) for n in ("r", "w", "k", "v", "kappa", "a"))
    q = r * r.shape[-1] ** 0.5
    u, _ = f["dplr_recurrence"](q=q, k=k, v=v, alpha=-kappa, beta=rate * kappa, gk=w.log())
    return u.squeeze(1)


def _selective_scan(f, a):
    time_last = {n: a[n].transpose(1, 2) for n in ("x", "delta", "b", "c")}
    y = f["selective_scan_ref"](
        u=time_last["x"], delta=time_last["delta"], A=a["a"].float(), B=time_last["b"], C=time_last["c"], D=a["skip"].float()
    )
    return y.transpose(1, 2)


def _selective_step(f, a):
    import torch

    state = torch.zeros(a["x"].shape[0], *a["a"].shape, dtype=torch.float64)
    outputs = [
        f["selective_state_update_ref"](
            state=state, x=a["x"][:, t], dt=a["delta"][:, t], A=a["a"], B=a["b"][:, t], C=a["c"][:, t], D=a["skip"]
        )
        for t in range(a["x"].shape[1])
    ]
    return torch.stack(outputs, dim=1)


def _ssd(f, a):
    import torch.nn.functional as F

    seq_len, block = a["x"].shape[1], 16
    pad = -seq_len % block
    x, b, c = (F.pad(_heads(a[n]), (0, 0, 0, 0, 0, pad)) for n in ("x", "b", "c"))
    log_a = F.pad(_heads(a["a"].log()), (0, 0, 0, pad))
    y, _ = f["ssd_minimal_discrete"](X=x, A=log_a, B=b, C=c, block_len=block)
    return y[:, :seq_len].squeeze(2)


def _convolution(f, a):
    y = f["causal_conv1d_fn"](a["x"].transpose(1, 2), weight=a["weight"], bias=a["bias"])
    return y.transpose(1, 2)


def _rows(*parts):
    """Weights of several maps interleaved head by head: parts (heads, out, d_model) to (heads * sum of out, d_model)."""
    import torch

    return torch.cat(parts, dim=1).flatten(0, 1).float()


def _qwen_gated_deltanet(f, a):
    """Upstream's whole Gated DeltaNet module, with the given weights; as many value heads as key heads."""
    import torch

    (heads, key_dim, d_model), value_dim = a["wq"].shape, a["wv"].shape[1]
    config = SimpleNamespace(
        hidden_size=d_model,
        linear_num_value_heads=heads,
        linear_num_key_heads=heads,
        linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim,
        linear_conv_kernel_dim=a["conv_q"].shape[-1],
        hidden_act="silu",
        rms_norm_eps=float(a["eps"]),
        layer_types=["linear_attention"],
    )
    module = f["Qwen3NextGatedDeltaNet"](config, 0)
    weights = {
        "in_proj_qkvz.weight": _rows(a["wq"], a["wk"], a["wv"], a["wz"]),
        "in_proj_ba.weight": _rows(a["wb"][:, None], a["wa"][:, None]),
        "conv1d.weight": torch.cat([a[n].flatten(0, 1) for n in ("conv_q", "conv_k", "conv_v")]).float()[:, None],
        "dt_bias": a["dt_bias"].float(),
        "A_log": a["a_log"].float(),
        "norm.weight": a["norm"].float(),
        "out_proj.weight": a["out"].float(),
    }
    module.load_state_dict(weights)
    return module(a["x"].float())


def _qwen_gated_attention(f, a):
    """Upstream's whole Gated Attention module, with the given weights; rotary tables `cos`, `sin` (seq_len, rotated)."""
    import torch

    heads, head_dim, d_model = a["wq"].shape
    config = SimpleNamespace(
        hidden_size=d_model,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        attention_dropout=0.0,
        attention_bias=False,
        rms_norm_eps=float(a["eps"]),
        _attn_implementation="eager",
    )
    module = f["Qwen3NextAttention"](config, 0)
    weights = {
        "q_proj.weight": _rows(a["wq"], a["wgate"]),
        "k_proj.weight": _rows(a["wk"]),
        "v_proj.weight": _rows(a["wv"]),
        "o_proj.weight": a["out"].float(),
        "q_norm.weight": a["q_norm"].float(),
        "k_norm.weight": a["k_norm"].float(),
    }
    module.load_state_dict(weights)
    seq_len = a["x"].shape[1]
    mask = torch.full((seq_len, seq_len), -torch.inf).triu(1)[None, None]
    tables = tuple(a[n].float()[None] for n in ("cos", "sin"))
    return module(a["x"].float(), position_embeddings=tables, attention_mask=mask)[0]


def _mamba_block(f, a):
    """Upstream's whole Mamba-1 module, with the given weights, on its slow path."""
    import torch

    (channels, d_model), state_dim, dt_rank = a["in_x"].shape, a["x_b"].shape[0], a["x_dt"].shape[0]
    module = f["Mamba"](
        d_model=d_model,
        d_state=state_dim,
        d_conv=a["conv"].shape[-1],
        expand=(channels + 0.5) / d_model,  # upstream takes the integer part of expand * d_model
        dt_rank=dt_rank,
        use_fast_path=False,
    )
    weights = {
        "in_proj.weight": torch.cat([a["in_x"], a["in_z"]]),
        "conv1d.weight": a["conv"][:, None],
        "conv1d.bias": a["conv_bias"],
        "x_proj.weight": torch.cat([a["x_dt"], a["x_b"], a["x_c"]]),
        "dt_proj.weight": a["dt"],
        "dt_proj.bias": a["dt_bias"],
        "A_log": a["a_log"],
        "D": a["skip"],
        "out_proj.weight": a["out"],
    }
    module.load_state_dict({name: w.float() for name, w in weights.items()})
    return module(a["x"].float())


def _undecorated():
    """A decorator factory that changes nothing."""
    return lambda *args, **options: lambda function: function


def _silu_only():
    import torch.nn.functional as F

    return {"silu": F.silu}


_QWEN_STAND_INS = {
    "is_torchdynamo_exporting": lambda: lambda: False,
    "ACT2FN": _silu_only,
    "deprecate_kwarg": _undecorated,
    "force_accelerate_hooks": _undecorated,
    "ALL_ATTENTION_FUNCTIONS": lambda: SimpleNamespace(get_interface=lambda name, default: default),
}


def _fla(folder: str, names: str, sha256: str) -> Excerpt:
    return Excerpt(*FLA, f"fla/ops/{folder}/naive.py", tuple(names.split()), sha256)


def _mamba(path: str, names: str, sha256: str) -> Excerpt:
    return Excerpt(*MAMBA, f"mamba_ssm/{path}", tuple(names.split()), sha256)


def _qwen(names: str, sha256: str) -> Excerpt:
    return Excerpt(*TRANSFORMERS, QWEN3_NEXT, tuple(names.split()), sha256, _QWEN_STAND_INS)


_FLA_ATTENTION = _fla("attn", "naive_parallel_attn", "696b8e0df7a11303adfc6e95441f179f7a60e84f325694532e73bbe65714797b")
_FLA_LINEAR = _fla(
    "linear_attn", "naive_recurrent_linear_attn", "8d8734af58fef9f399c97311bc92c2be0690168db45e09172ab4eb13f523a7e4"
)
_FLA_GATED_DELTA = _fla(
    "gated_delta_rule",
    "naive_recurrent_gated_delta_rule naive_chunk_gated_delta_rule",
    "4dcc06858e2bab097e769d09e00030ddd5d745891ba9b2c4ad830563de9814ba",
)
_QWEN_DELTA = _qwen(
    "l2norm torch_chunk_gated_delta_rule torch_recurrent_gated_delta_rule",
    "83693e26d40f46679025ef368c15cac4448c6a63301cbe5f8206ed9cf17b0b15",
)
_QWEN_CONVOLUTION = _qwen("causal_conv1d_fn", "4332465371f219181a661f8a858212a8644c43cf3a74b6f353ef5a6e8638e5ee")
_QWEN_GDN = _qwen(
    "Qwen3NextRMSNormGated apply_mask_to_padding_states causal_conv1d_update causal_conv1d_fn l2norm "
    "torch_chunk_gated_delta_rule torch_recurrent_gated_delta_rule Qwen3NextGatedDeltaNet",
    "03d322f81f0b36483dc03d939411bdaa415937f1d514c146784280c3f694c54d",
)
_QWEN_GA = _qwen(
    "Qwen3NextRMSNorm rotate_half apply_rotary_pos_emb repeat_kv eager_attention_forward Qwen3NextAttention",
    "cf03502b406304128bb49109c5bf590a52564463b155eaffd901cee8ef9f6780",
)

_MAMBA_SCAN = _mamba(
    "ops/selective_scan_interface.py", "selective_scan_ref", "3ffa5f89ab63432b66d6a98d35ee767229f86a7a56f546d83e9b8000a840c9a5"
)
_MAMBA_BLOCK = Excerpt(
    *MAMBA,
    "mamba_ssm/modules/mamba_simple.py",
    ("Mamba",),
    "d28cd5c0067ccb2b5dc9821cabdc92e0f5c0d3275e46d73147325f2ee443c6ed",
    {
        "math": lambda: math,
        "selective_scan_fn": lambda: _MAMBA_SCAN.load()["selective_scan_ref"],
        "causal_conv1d_fn": lambda: None,  # upstream then convolves with torch
    },
)

ORACLES: tuple[Oracle, ...] = (
    Oracle("naive_parallel_attn", "attention, full", _FLA_ATTENTION, "float64", _attention(None)),
    Oracle("naive_parallel_attn, window", "attention, window", _FLA_ATTENTION, "float64", _attention("window")),
    Oracle("naive_recurrent_linear_attn, normalised", "linear attention, normalised", _FLA_LINEAR, "float32", _linear_normalised),
    Oracle(
        "naive_parallel_based",
        "linear attention, Taylor-2",
        _fla("based", "naive_parallel_based", "e0c2055333c217a6ed77ad655d9f895ddc1ba3745f66433b80be6c43df14d155"),
        "float32",  # upstream adds 1e-6 to the denominator
        _taylor,
    ),
    Oracle("naive_recurrent_linear_attn", "linear attention, plain", _FLA_LINEAR, "float32", _linear_plain),
    Oracle(
        "naive_retention",
        "retention",
        _fla("retention", "naive_retention", "1c8f91d390bcc86c6fc607339263f9b9b575a8457d66a1a2604ce546ce5e581c"),
        "float32",
        _retention,
    ),
    Oracle(
        "naive_recurrent_gla",
        "GLA",
        _fla("gla", "naive_recurrent_gla", "6f541363e2b91a305d0a8d95406ac70a88b64213c8e643c2b941ba84a348727b"),
        "float32",
        _gla,
    ),
    Oracle(
        "delta_rule_recurrence",
        "DeltaNet",
        _fla("delta_rule", "delta_rule_recurrence", "19d8dbfdcff8d2c94cf67501e829faf31b2cb3c38a18accbb115244a163bd13f"),
        "float32",
        _delta_rule,
    ),
    Oracle(
        "naive_recurrent_gated_delta_rule",
        "Gated DeltaNet",
        _FLA_GATED_DELTA,
        "float32",
        _gated_delta("naive_recurrent_gated_delta_rule"),
    ),
    Oracle(
        "naive_chunk_gated_delta_rule",
        "Gated DeltaNet",
        _FLA_GATED_DELTA,
        "float32",
        _gated_delta("naive_chunk_gated_delta_rule", chunk_size=16),
    ),
    Oracle(
        "torch_recurrent_gated_delta_rule",
        "Gated DeltaNet",
        _QWEN_DELTA,
        "float32",
        _qwen_delta("torch_recurrent_gated_delta_rule"),
    ),
    Oracle(
        "torch_chunk_gated_delta_rule",
        "Gated DeltaNet",
        _QWEN_DELTA,
        "float32",
        _qwen_delta("torch_chunk_gated_delta_rule", chunk_size=16),
    ),
    Oracle(
        "naive_recurrent_kda",
        "KDA",
        _fla("kda", "naive_recurrent_kda", "a9ba7f50e5c1a1e2a6184b8cd622138200be4686b5b9456a8aaca705c34e38ee"),
        "float32",
        _kda,
    ),
    Oracle(
        "dplr_recurrence",
        "RWKV-7",
        _fla(
            "generalized_delta_rule/dplr", "dplr_recurrence", "0c1b00f6fbc22a954616d2cd604d5585f36278e250a9eb0cc024a9474e295cea"
        ),
        "float32",
        _rwkv7,
    ),
    Oracle(
        "selective_scan_ref",
        "Mamba",
        _MAMBA_SCAN,
        "float32",
        _selective_scan,
    ),
    Oracle(
        "selective_state_update_ref",
        "Mamba",
        _mamba(
            "ops/triton/selective_state_update.py",
            "selective_state_update_ref",
            "9fcb78bcbff98717f0551ec5fa3093223d9ebdbb303064bf96b3dea133b6d803",
        ),
        "float64",
        _selective_step,
    ),
    Oracle(
        "ssd_minimal_discrete",
        "Mamba-2",
        _mamba(
            "modules/ssd_minimal.py",
            "segsum ssd_minimal_discrete",
            "31a87dc4581698fd94a10affdc26cade6be3f442e6277d001e88f709eaaf60e9",
        ),
        "float64",
        _ssd,
    ),
    Oracle("Mamba", "Mamba block", _MAMBA_BLOCK, "float32", _mamba_block),
    Oracle("causal_conv1d_fn", "short convolution", _QWEN_CONVOLUTION, "float64", _convolution),
    Oracle("Qwen3NextGatedDeltaNet", "Gated DeltaNet block", _QWEN_GDN, "float32", _qwen_gated_deltanet),
    Oracle("Qwen3NextAttention", "Gated Attention block", _QWEN_GA, "float32", _qwen_gated_attention),
)


def find(name: str) -> Oracle:
    """The oracle of that name.

    Raises:
        ValueError: there is none.
    """
    for oracle in ORACLES:
        if oracle.name == name:
            return oracle
    raise ValueError(f"oracle={name!r}: must be one of {', '.join(o.name for o in ORACLES)}")


def available() -> list[Status]:
    """One row an oracle: name, mixer, package, versions, whether it can run here and what to do if not."""
    return [oracle.status() for oracle in ORACLES]

"""The plain decoder against a slow reading of the definition, against upstream's modules, and against finite differences."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from hybridseq.arithmetic import Float
from hybridseq.learning.modules import Decoder, gated_deltanet, loss, mamba, rms_norm, score, transformer, turned, untouched
from hybridseq.learning.stack import Stack
from hybridseq.mixers import MambaBlock
from hybridseq.oracles import Excerpt, find

AR = Float("torch", "float64")


def drawn(stack, seed=0):
    """Parameters far from their initial values, so that nothing is nearly linear, nearly uniform or zero."""
    return stack.initial(seed) + 0.3 * np.random.default_rng(seed).standard_normal(stack.size)


def rows(stack, batch=2, seq_len=9, seed=0):
    return np.random.default_rng(seed + 100).integers(stack.vocab_size, size=(batch, seq_len))


def layer_weights(stack, flat, i=0):
    w = stack.unpack(torch.as_tensor(flat))
    return {name.removeprefix(f"{i}."): value for name, value in w.items() if name.startswith(f"{i}.")}


# a slow reading of the definition: one token, one head, one coordinate at a time


def sigma(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigma(x)


def softplus(x):
    return np.logaddexp(0, x)


def normed(x, weight, bias=None):
    """RMS norm; with a bias, layer norm."""
    centred = x if bias is None else x - x.mean()
    y = weight * centred / math.sqrt((centred**2).mean() + 1e-5)
    return y if bias is None else y + bias


def slow_turned(stack, x, position):
    n = stack.rotary_columns
    half = n // 2
    y = x.copy()
    for j in range(n):
        pairs = math.ceil(n / 2)
        angle = position * 10_000 ** (-2 * (j % pairs) / n)
        partner = x[half + j] if j < n - half else x[j - (n - half)]
        y[j] = x[j] * math.cos(angle) + (-partner if j < n - half else partner) * math.sin(angle)
    return y


def slow_attention(stack, w, xs):
    d, heads, hd = stack.width, stack.heads, stack.head_dim
    size = heads * hd
    projected = [w["qkv.weight"] @ normed(x, w["norm1.weight"], w["norm1.bias"]) + w["qkv.bias"] for x in xs]
    out = []
    for i in range(len(xs)):
        parts = []
        for h in range(heads):
            here = [slice(kind * size + h * hd, kind * size + (h + 1) * hd) for kind in range(3)]
            q = slow_turned(stack, projected[i][here[0]], i)
            seen = [j for j in range(i + 1) if stack.window is None or i - j < stack.window]
            z = [np.exp(q @ slow_turned(stack, projected[j][here[1]], j) / math.sqrt(hd)) for j in seen]
            parts.append(sum(e * projected[j][here[2]] for e, j in zip(z, seen, strict=True)) / sum(z))
        mixed = sum(parts) if stack.head_width == "full" else np.concatenate(parts)
        assert len(mixed) == d
        hidden = silu(w["up.weight"] @ normed(xs[i], w["norm2.weight"], w["norm2.bias"]) + w["up.bias"])
        out.append(w["dense.weight"] @ mixed + w["dense.bias"] + w["down.weight"] @ hidden + w["down.bias"])
    return out


def slow_convolution(stack, w, us):
    if not stack.convolution:
        return us
    zero = np.zeros_like(us[0])
    past = [zero, zero, zero, *us]
    return [silu(sum(w["conv.weight"][:, j] * past[t + j] for j in range(4)) + w["conv.bias"]) for t in range(len(us))]


def slow_mamba(stack, w, xs):
    channels, n, r = 2 * stack.width, stack.state_dim, stack.dt_rank
    both = [w["in_proj.weight"] @ normed(x, w["norm.weight"]) for x in xs]
    h, out = np.zeros((channels, n)), []
    for u, z in zip(slow_convolution(stack, w, [b[:channels] for b in both]), [b[channels:] for b in both], strict=True):
        small = w["x_proj.weight"] @ u
        dt = softplus(w["dt_proj.weight"] @ small[:r] + w["dt_proj.bias"])
        b, c = small[r : r + n], small[r + n :]
        for channel in range(channels):
            for state in range(n):
                kept = math.exp(-math.exp(w["A_log"][channel, state]) * dt[channel]) * h[channel, state]
                h[channel, state] = kept + dt[channel] * u[channel] * b[state]
        out.append(w["out_proj.weight"] @ ((h @ c + w["D"] * u) * silu(z)))
    return out


def slow_outer(stack, w, x, u):
    """Norm of each head, gate, output map."""
    gate = silu(w["gate.weight"] @ normed(x, w["norm.weight"]))
    return w["out.weight"] @ (np.concatenate([normed(part, w["head_norm.weight"]) for part in u]) * gate)


def slow_deltanet(stack, w, xs):
    heads, hd = stack.heads, stack.head_dim
    inner = [normed(x, w["norm.weight"]) for x in xs]
    qkv = slow_convolution(stack, w, [w["qkv.weight"] @ x for x in inner])
    states, out = [np.zeros((hd, hd)) for _ in range(heads)], []
    for t, x in enumerate(inner):
        u = []
        for h in range(heads):
            q, k, v = (qkv[t][(kind * heads + h) * hd : (kind * heads + h + 1) * hd] for kind in range(3))
            q, k = (y / math.sqrt(y @ y + 1e-6) for y in (q, k))
            beta = sigma(w["beta.weight"][h] @ x) * (2 if stack.negative_eigenvalues else 1)
            alpha = math.exp(-math.exp(w["decay.log_rate"][h]) * softplus(w["decay.weight"][h] @ x + w["decay.dt_bias"][h]))
            states[h] = alpha * states[h] @ (np.eye(hd) - beta * np.outer(k, k)) + beta * np.outer(v, k)
            u.append(states[h] @ q / math.sqrt(hd))
        out.append(slow_outer(stack, w, xs[t], u))
    return out


def slow_linear_attention(stack, w, xs):
    heads, hd = stack.heads, stack.head_dim
    states, out = [np.zeros((hd, hd)) for _ in range(heads)], []
    for x in xs:
        inner = normed(x, w["norm.weight"])
        qkv = w["qkv.weight"] @ inner
        alpha = sigma(w["decay_out.weight"] @ (w["decay_in.weight"] @ inner) + w["decay_out.bias"]) ** (1 / 16)
        u = []
        for h in range(heads):
            q, k, v = (qkv[(kind * heads + h) * hd : (kind * heads + h + 1) * hd] for kind in range(3))
            states[h] = states[h] * alpha[h * hd : (h + 1) * hd] + np.outer(v, k)
            u.append(states[h] @ q / math.sqrt(hd))
        out.append(slow_outer(stack, w, x, u))
    return out


SLOW = {"TF": slow_attention, "SSM": slow_mamba, "GDN": slow_deltanet, "GLA": slow_linear_attention}


def slow_logits(stack, flat, tokens):
    w = stack.unpack(flat)
    result = []
    for row in tokens:
        xs = [w["embedding"][t] for t in row]
        for i, letters in enumerate(stack.layers):
            part = {name.removeprefix(f"{i}."): value for name, value in w.items() if name.startswith(f"{i}.")}
            xs = [x + added for x, added in zip(xs, SLOW[letters](stack, part, xs), strict=True)]
        read = w["embedding" if stack.tied else "unembedding.weight"]
        result.append([read @ normed(x, w["norm.weight"], w["norm.bias"]) for x in xs])
    return np.array(result)


STACKS = [
    Stack.parse("SSM-TF", width=8, vocab_size=7),
    Stack.parse("TF-SSM", width=12, vocab_size=7, window=3, state_dim=4),  # three turned columns
    Stack.parse("TF-TF", width=12, vocab_size=7, heads=2, window=1),
    Stack.parse("TF-TF", width=16, vocab_size=7, heads=2, head_width="split", tied=False),
    Stack.parse("TF", width=20, vocab_size=7, rotary="rotation"),
    Stack.parse("TF", width=20, vocab_size=7),  # five turned columns
    Stack.parse("TF", width=4, vocab_size=7),  # one
    Stack.parse("SSM-SSM", width=20, vocab_size=7, convolution=False, state_dim=3),  # step sizes of rank 2
    Stack.parse("SSM-SSM-TF", width=4, vocab_size=7, rotary="none", state_dim=2),
    Stack.parse("GDN-TF", width=8, vocab_size=7, heads=2),
    Stack.parse("GDN", width=8, vocab_size=7, negative_eigenvalues=True, convolution=False),
    Stack.parse("GLA-GDN", width=12, vocab_size=7, heads=3, head_width="split"),
]


def label(stack):
    odd = [f"{k}={v}" for k, v in stack.config.items() if v != getattr(Stack, k, None) and k not in ("layers", "vocab_size")]
    return "-".join([stack.name, *odd])


@pytest.mark.parametrize("stack", STACKS, ids=label)
def test_decoder_equals_the_slow_reading(stack):
    flat, tokens = drawn(stack), rows(stack)
    got = Decoder(stack, flat)(tokens).detach().numpy()
    np.testing.assert_allclose(got, slow_logits(stack, flat, tokens), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("stack", STACKS, ids=label)
def test_gradient_against_finite_differences(stack):
    generator = np.random.default_rng(1)
    flat, tokens = drawn(stack), rows(stack)
    labels = np.where(generator.random(tokens.shape) < 0.5, rows(stack, seed=5), -1)
    keep = (generator.random((*tokens.shape, stack.width)) < 0.9) / 0.9

    def value(parameters):
        return loss(Decoder(stack, parameters)(tokens, keep=keep), labels)

    decoder = Decoder(stack, flat)
    loss(decoder(tokens, keep=keep), labels).backward()
    gradient = decoder.flat.grad.numpy()
    for _ in range(4):
        direction = generator.standard_normal(stack.size)
        direction /= np.linalg.norm(direction)
        near, far = (value(flat + h * direction).item() - value(flat - h * direction).item() for h in (5e-4, 1e-3))
        slope = (8 * near - far) / (12 * 5e-4)  # of fourth order
        assert slope == pytest.approx(gradient @ direction, rel=1e-6, abs=1e-9)


def test_gradient_at_a_token_that_dropout_removed():
    """Without convolution such a token's step size is exactly softplus(0) at the start, where |x| has no derivative."""
    stack = Stack.parse("SSM-SSM", width=4, vocab_size=7, convolution=False)
    flat, tokens = stack.initial(0), rows(stack)
    keep = np.ones((*tokens.shape, 4))
    keep[:, 4] = 0
    decoder = Decoder(stack, flat)
    loss(decoder(tokens, keep=keep), tokens).backward()
    offset = stack.offsets["0.dt_proj.bias"]
    for i in range(offset, offset + stack.channels):
        step = np.zeros(stack.size)
        step[i] = 1e-3
        up, down = (loss(Decoder(stack, flat + s * step)(tokens, keep=keep), tokens).item() for s in (1, -1))
        assert (up - down) / 2e-3 == pytest.approx(decoder.flat.grad[i].item(), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("stack", STACKS, ids=label)
def test_no_position_sees_a_later_token(stack):
    decoder = Decoder(stack, drawn(stack))
    tokens = rows(stack)
    other = tokens.copy()
    other[:, 5:] = (other[:, 5:] + 1) % stack.vocab_size
    before, after = (decoder(t).detach().numpy() for t in (tokens, other))
    np.testing.assert_allclose(before[:, :5], after[:, :5], rtol=1e-12)
    assert abs(before[:, 5] - after[:, 5]).min() > 1e-6


@pytest.mark.parametrize("stack", STACKS, ids=label)
def test_single_precision_is_close_to_double(stack):
    flat, tokens = drawn(stack), rows(stack)
    single, double = (Decoder(stack, flat, dtype)(tokens).detach() for dtype in ("float32", "float64"))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)


# upstream's own modules


def mamba_arrays(stack, w):
    c, n, r = stack.channels, stack.state_dim, stack.dt_rank
    parts = {
        "in_x": w["in_proj.weight"][:c], "in_z": w["in_proj.weight"][c:], "conv": w["conv.weight"], "conv_bias": w["conv.bias"],
        "x_dt": w["x_proj.weight"][:r], "x_b": w["x_proj.weight"][r : r + n], "x_c": w["x_proj.weight"][r + n :],
        "dt": w["dt_proj.weight"], "dt_bias": w["dt_proj.bias"], "a_log": w["A_log"], "skip": w["D"], "out": w["out_proj.weight"],
    }  # fmt: skip
    return {name: part.numpy() for name, part in parts.items()}


@pytest.mark.parametrize("width", [4, 24])
def test_mamba_layer_equals_the_mamba_block(width):
    stack = Stack.parse("SSM", width=width, vocab_size=3)
    w = layer_weights(stack, drawn(stack))
    x = torch.as_tensor(np.random.default_rng(2).standard_normal((2, 30, width)))
    ours = mamba(stack, AR, w, x, untouched)
    block = MambaBlock(AR, mamba_arrays(stack, w))
    torch.testing.assert_close(ours, block.forward(AR, rms_norm(x, w["norm.weight"])), rtol=1e-12, atol=1e-12)


def ready(oracle):
    if oracle.status().status == "not run here":
        pytest.skip(f"oracle not run here: {oracle.status().fix}")
    return oracle


@pytest.mark.oracle
@pytest.mark.parametrize("width", [4, 24])
def test_mamba_layer_equals_upstreams_module(width):
    oracle = ready(find("Mamba"))
    stack = Stack.parse("SSM", width=width, vocab_size=3)
    w = layer_weights(stack, drawn(stack))
    x = torch.as_tensor(np.random.default_rng(2).standard_normal((2, 30, width)))
    theirs = oracle(**mamba_arrays(stack, w), x=rms_norm(x, w["norm.weight"]).numpy())
    ours = mamba(stack, AR, w, x, untouched).numpy()
    assert abs(ours - theirs).max() <= oracle.tolerance * abs(theirs).max()


@pytest.mark.oracle
def test_gated_deltanet_layer_equals_upstreams_module():
    oracle = ready(find("Qwen3NextGatedDeltaNet"))
    stack = Stack.parse("GDN", width=8, vocab_size=3, heads=2)
    w = layer_weights(stack, drawn(stack))
    w["conv.bias"] = torch.zeros_like(w["conv.bias"])  # upstream's convolution has none
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((2, 20, 8)))
    qkv, conv = (w[name].unflatten(0, (3, 2, 8)).numpy() for name in ("qkv.weight", "conv.weight"))
    arrays = {f"w{name}": part for name, part in zip("qkv", qkv, strict=True)}
    arrays |= {f"conv_{name}": part for name, part in zip("qkv", conv, strict=True)}
    arrays |= {
        "wz": w["gate.weight"].unflatten(0, (2, 8)).numpy(), "wa": w["decay.weight"].numpy(), "wb": w["beta.weight"].numpy(),
        "a_log": w["decay.log_rate"].numpy(), "dt_bias": w["decay.dt_bias"].numpy(), "norm": w["head_norm.weight"].numpy(),
        "out": w["out.weight"].numpy(), "eps": np.array(1e-5),
    }  # fmt: skip
    theirs = oracle(**arrays, x=rms_norm(x, w["norm.weight"]).numpy())
    ours = gated_deltanet(stack, AR, w, x, untouched).numpy()
    assert abs(ours - theirs).max() <= oracle.tolerance * abs(theirs).max()


DIVIDED = [s for s in STACKS if "TF" in s.layers and s.rotary != "none" and s.heads * s.head_dim == s.width]
"""Stacks whose heads divide the width, as upstream's do."""

GPT_NEOX = Excerpt(
    "transformers",
    "5.24.0",
    "transformers/models/gpt_neox/modeling_gpt_neox.py",
    ("rotate_half", "apply_rotary_pos_emb", "eager_attention_forward", "GPTNeoXMLP", "GPTNeoXAttention", "GPTNeoXLayer"),
    "31528584f0c6a2b4b03f70f08ec7d37ea542b0e38ef7e00bf43f0d4c396bf268",
    {
        "GradientCheckpointingLayer": lambda: torch.nn.Module,
        "ACT2FN": lambda: {"silu": functional.silu},
        "ALL_ATTENTION_FUNCTIONS": lambda: SimpleNamespace(get_interface=lambda name, default: default),
    },
)


@pytest.mark.oracle
@pytest.mark.parametrize("stack", DIVIDED, ids=label)
def test_transformer_layer_equals_gpt_neox(stack):
    if GPT_NEOX.installed_version() != GPT_NEOX.version:
        pytest.skip("oracle not run here: `make oracle` installs it")
    stack = replace(stack, layers=("TF",))
    d, hd, seq_len = stack.width, stack.head_dim, 12
    w = layer_weights(stack, drawn(stack))
    config = SimpleNamespace(
        hidden_size=d, num_attention_heads=stack.heads, intermediate_size=2 * d, hidden_act="silu", attention_bias=True,
        attention_dropout=0.0, hidden_dropout=0.0, layer_norm_eps=1e-5, use_parallel_residual=True, _attn_implementation="eager",
        rope_parameters={"partial_rotary_factor": 0.25},
    )  # fmt: skip
    layer = GPT_NEOX.load()["GPTNeoXLayer"](config, 0).double()

    def head_by_head(rows):  # ours: every q, every k, every v; upstream: q, k, v of each head
        return rows.unflatten(0, (3, stack.heads, hd)).transpose(0, 1).flatten(0, 2)

    names = {
        "input_layernorm": "norm1", "post_attention_layernorm": "norm2", "attention.query_key_value": "qkv",
        "attention.dense": "dense", "mlp.dense_h_to_4h": "up", "mlp.dense_4h_to_h": "down",
    }  # fmt: skip
    state = {f"{theirs}.{p}": w[f"{ours}.{p}"] for theirs, ours in names.items() for p in ("weight", "bias")}
    state |= {f"attention.query_key_value.{p}": head_by_head(w[f"qkv.{p}"]) for p in ("weight", "bias")}
    layer.load_state_dict(state)
    i, j = torch.meshgrid(torch.arange(seq_len), torch.arange(seq_len), indexing="ij")
    hidden = (j > i) if stack.window is None else (j > i) | (i - j >= stack.window)
    mask = torch.zeros(1, 1, seq_len, seq_len, dtype=torch.float64).masked_fill(hidden, -torch.inf)
    tables = tuple(torch.as_tensor(table)[None] for table in stack.rotary_tables(seq_len))
    x = torch.as_tensor(np.random.default_rng(4).standard_normal((2, seq_len, d)))
    with torch.no_grad():
        theirs = layer(x, attention_mask=mask, position_embeddings=tables) - x
    ours = transformer(stack, AR, w, x, untouched)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))  # upstream's softmax is single


# positions


def score_of(stack, q, k, i, j):
    place = torch.zeros(1, 1, 60, stack.head_dim, dtype=torch.float64)
    place[0, 0, i], place[0, 0, j] = torch.as_tensor(q), torch.as_tensor(k)
    y = turned(stack, AR, place)
    return float(y[0, 0, i] @ y[0, 0, j])


@pytest.mark.parametrize(
    ("width", "rotary", "relative"), [(16, "released", True), (12, "rotation", True), (12, "released", False)]
)
def test_a_score_depends_on_the_distance_alone_if_an_even_number_of_columns_turns(width, rotary, relative):
    stack = Stack.parse("TF", width=width, vocab_size=3, rotary=rotary)
    q, k = np.random.default_rng(0).standard_normal((2, width))
    same = [score_of(stack, q, k, i + 7, i) for i in (0, 1, 20, 50)]
    assert (np.ptp(same) < 1e-12) == relative
    assert abs(same[0] - score_of(stack, q, k, 9, 0)) > 1e-3


# traces and interventions


def test_a_trace_is_the_computation():
    stack = Stack.parse("SSM-TF-GDN-GLA", width=8, vocab_size=7, window=4, heads=2, state_dim=3)
    decoder, tokens = Decoder(stack, drawn(stack)), rows(stack)
    trace = decoder.trace(tokens)
    np.testing.assert_array_equal(trace.logits, decoder(tokens).detach())
    added = {0: ["out"], 1: ["attended", "mlp"], 2: ["out"], 3: ["out"]}
    for i, names in added.items():
        total = trace.residual(i) + sum(trace[f"{i}.{name}"] for name in names)
        torch.testing.assert_close(trace.residual(i + 1), total)
    attention = trace.attention(1)
    assert tuple(attention.shape) == (2, 2, 9, 9)
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 2, 9, dtype=torch.float64))
    i, j = np.indices((9, 9))
    assert not attention.numpy()[..., (j > i) | (i - j >= 4)].any()
    assert [tuple(trace.state(i).shape) for i in (0, 2, 3)] == [(2, 9, 16, 3), (2, 9, 2, 8, 8), (2, 9, 2, 8, 8)]
    assert [sorted(trace.gates(i)) for i in range(4)] == [["B", "C", "dt"], [], ["alpha", "beta"], ["alpha"]]
    state, gates, w = trace.state(0), trace.gates(0), layer_weights(stack, drawn(stack))
    kept = torch.exp(-torch.exp(w["A_log"]) * gates["dt"][:, 1:, :, None]) * state[:, :-1]
    written = (gates["dt"] * trace["0.u"])[..., None] * gates["B"][:, :, None]
    torch.testing.assert_close(state[:, 1:], kept + written[:, 1:])
    torch.testing.assert_close(trace["0.y"], (state @ gates["C"][..., None])[..., 0] + w["D"] * trace["0.u"])


def test_a_trace_keeps_what_it_is_asked_for():
    stack = Stack.parse("SSM-TF", width=8, vocab_size=7)
    decoder, tokens = Decoder(stack, drawn(stack)), rows(stack)
    trace = decoder.trace(tokens, names={"0.state", "1.attention"})
    assert set(trace.values) == {"0.state", "1.attention"}
    with pytest.raises(ValueError, match=r"logits.*0\.state"):
        trace.logits  # noqa: B018
    with pytest.raises(ValueError, match=r"2\.state"):
        decoder.trace(tokens, names={"2.state"})


def test_an_intervention_changes_what_follows_and_nothing_before():
    stack = Stack.parse("SSM-TF", width=8, vocab_size=7)
    decoder, tokens = Decoder(stack, drawn(stack)), rows(stack)

    def forget(name, value, step=None):
        return torch.zeros_like(value) if name == "0.state" and step == 4 else value

    before, after = decoder.trace(tokens), decoder.trace(tokens, tap=forget)
    torch.testing.assert_close(after.logits[:, :4], before.logits[:, :4], rtol=1e-12, atol=1e-12)
    assert not after.state(0)[:, 4].any()
    assert ((after.logits - before.logits)[:, 4:].abs().amax(-1) > 1e-9).all()


# loss, score, bad input


def test_loss_is_the_mean_over_labelled_positions():
    logits = torch.as_tensor(np.random.default_rng(0).standard_normal((2, 3, 4)))
    labels = np.array([[-1, 2, -1], [0, -1, 3]])
    p = np.exp(logits.numpy())
    p /= p.sum(-1, keepdims=True)
    assert loss(logits, labels).item() == pytest.approx(-np.log([p[0, 1, 2], p[1, 0, 0], p[1, 2, 3]]).mean(), rel=1e-12)


def test_score_needs_a_logit_above_every_other():
    nan, inf = math.nan, math.inf
    cases = [
        ([1.0, 0.0, 0.5], 0, 1), ([1.0, 1.0, 0.5], 0, 0), ([1.0, 1.0, 1.0], 2, 0), ([0.0, 1.0, 0.5], 0, 0),
        ([nan, 0.0, 0.0], 0, 0), ([1.0, nan, 0.0], 0, 0), ([nan, nan, nan], 1, 0), ([-inf, -inf, -inf], 0, 0),
        ([1.0, -inf, -inf], 0, 1), ([inf, 0.0, 0.0], 0, 1),
    ]  # fmt: skip
    for row, chosen, expected in cases:
        assert score(torch.tensor([[row]]), [[chosen]]) == (expected, 1), row
    together = torch.tensor([[row for row, _, _ in cases]])
    assert score(together, [[chosen for _, chosen, _ in cases]]) == (3, 10)
    assert score(together, [[-1] * 10]) == (0, 0)


def test_bad_input():
    stack = Stack.parse("SSM-TF", width=8, vocab_size=7)
    with pytest.raises(ValueError, match=str(stack.size)):
        Decoder(stack, np.zeros(stack.size - 1))
    with pytest.raises(ValueError, match="float16"):
        Decoder(stack, stack.initial(0), "float16")
    decoder = Decoder(stack, stack.initial(0))
    for tokens in ([0, 1], [[0.5]], np.zeros((2, 0), int), np.zeros((1, 2), bool)):
        with pytest.raises(ValueError, match="tokens"):
            decoder(tokens)
    for tokens in ([[7]], [[-1]]):
        with pytest.raises(ValueError, match=r"0\.\.6"):
            decoder(tokens)
    logits = decoder([[1, 2]])
    for labels in ([[1]], [[0.0, 1.0]], [[7, 0]]):
        with pytest.raises(ValueError, match="labels"):
            loss(logits, labels)
        with pytest.raises(ValueError, match="labels"):
            score(logits, labels)
    with pytest.raises(ValueError, match="masked"):
        loss(logits, [[-1, -1]])

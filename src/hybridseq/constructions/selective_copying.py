"""A two-layer hybrid for selective copying (paper B, Theorem 4.3 and Section D.2), and the same weights in real layers.

The residual stream has five named parts; code(v, k) are the k binary digits of v as +-1, least significant first:

    T  p   code(token id, p)            p = w(N + M), w(c) = max(1, ceil(log2 c))
    I  1   1 if the token is a number, else 0
    P  r   code(L - i, r)               the distance from the end, r = w(L)
    C  r   0; the Mamba layer writes code(n - 1, r), n the last number so far
    O  p   0; the attention layer writes the token copied

    Mamba      h_i = (I - Delta_i W_A) h_{i-1} + Delta_i W_B x_i,  y_i = x_i + W_C h_i,  W_A = I,  Delta_i = I:  hold or overwrite
    attention  window N, one head, unscaled scores <beta C_L, P_j>, softmax, values T, output to O

A number's id is n - 1, so its token code *is* the code of the distance to look back; the indicator supplies the digits above
p. Two different codes have a product of at most r - 2, so the match is ahead by 2 beta or more and its weight is at least
1 / (1 + (N - 1) exp(-2 beta)), which beta = 1 + ln(N - 1) / 2 makes 1 / (1 + e^-2) or more.

Deviates: the query carries n - 1, not n (key j stands L - j from the end, and x_{L+1-n} stands n - 1 from it); the softmax has
a finite temperature and a margin; the logits are products with the token codes. The text at hand lost the displays of Section
D.2, so layout and matrices are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log, log2

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words, width_for
from hybridseq.constructions.euler_layer import euler_layer
from hybridseq.constructions.named_weights import NamedWeights, Removal, remove_each
from hybridseq.evidence import Check
from hybridseq.mixers import (
    Attention,
    GateScan,
    Head,
    Layer,
    MambaBlock,
    RotaryAttention,
    SelectiveInputs,
    SelectiveScan,
    softplus,
)
from hybridseq.models import Block, Model, SumEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks.selective_copying import MASKED, SelectiveCopying

FORMS = {
    "P": "paper B's form: an indicator step that holds or overwrites exactly",
    "G": "the exact discretisation, a sigmoid gate with pre-activation +-gain",
    "S": "the standard selective scan, step size softplus(+-gain)",
    "block": "a whole Mamba-1 block: convolution, SiLU, selective scan, gate",
}
DOMAINS = (
    (1, 2, 4), (2, 2, 6), (2, 3, 5), (3, 2, 5), (2, 2, 8), (3, 3, 5), (4, 1, 5), (4, 2, 5), (5, 2, 5), (3, 1, 6),
)  # fmt: skip
"""(N, M, L) of the ten small domains whose every sequence is run."""

MORE_DOMAINS = ((1, 1, 7), (2, 1, 9), (4, 3, 5), (6, 2, 5), (5, 1, 6))
"""Five more."""

TIED = 1e-9
"""Logits closer than this count as tied, and the lowest id wins: a control at beta = 0 must not hang on rounding errors."""

SLACK = {"float64": 1e-9, "float32": 1e-5}
"""What rounding may take off a proved weight or margin: far more than the few dozen roundings of a score can."""


# formulas -------------------------------------------------------------------------------------------------------------


def default_beta(num_numbers: int) -> float:
    """beta = 1 + ln(max(1, N - 1)) / 2.

    >>> round(default_beta(256), 9)
    3.770631773
    """
    return 1 + log(max(1, num_numbers - 1)) / 2


def proved_weight(num_numbers: int, beta: float) -> float:
    """1 / (1 + (N - 1) e^(-2 beta)): a lower bound on the weight of the match, because every other score is 2 beta behind."""
    return 1 / (1 + (num_numbers - 1) * exp(-2 * beta))


def sharp_weight(num_numbers: int, beta: float) -> float:
    """(1 + e^(-2 beta))^(-w(N)): also a lower bound, reached when N is a power of two, because scores factor over digits."""
    return (1 + exp(-2 * beta)) ** -(width_for(num_numbers) if num_numbers > 1 else 0)


def half_beta(bits: int) -> float:
    """The beta at which `sharp_weight` is one half, -ln(2^(1/k) - 1) / 2 for k digits: above it every answer is right.

    >>> round(half_beta(8), 10)
    1.2011599941
    """
    return -log(2 ** (1 / bits) - 1) / 2


def dimension(num_numbers: int, num_words: int, seq_len: int) -> int:
    """d = 2 p + 2 r + 1 (Theorem 4.3: O(max(log |V|, log L))).

    >>> dimension(5, 26, 100), dimension(256, 744, 10_000)
    (25, 49)
    """
    return 2 * width_for(num_numbers + num_words) + 2 * width_for(seq_len) + 1


def nonzeros(num_numbers: int, num_words: int, seq_len: int) -> int:
    """4 r + p + 1 weights that are not zero, W_v and W_o taken as one matrix, besides the r ones of W_A.

    As the maps stand in the model, W_A and W_o by themselves, they are 5 r + 2 p + 1.
    """
    return 4 * width_for(seq_len) + width_for(num_numbers + num_words) + 1


def dense_numbers(num_numbers: int, num_words: int, seq_len: int) -> int:
    """r^2 + 4 r d + d + d^2: the same maps as full matrices."""
    r, d = width_for(seq_len), dimension(num_numbers, num_words, seq_len)
    return r * r + 4 * r * d + d + d * d


def memory(num_numbers: int, num_words: int, seq_len: int) -> dict[str, float]:
    """Bits that depend on the input: the register's N + 1 states and the values in the window, beside what pure models need.

    A pure recurrence needs (N - 1) log2 M bits of state for an exact answer (chapter 10); a pure attention model must keep
    the values of L tokens. Keys depend on positions alone and are not counted.

    >>> {name: round(bits, 2) for name, bits in memory(5, 26, 100).items()}
    {'register': 2.58, 'window': 25, 'hybrid': 27.58, 'pure recurrence': 18.8, 'pure attention': 500}
    """
    p = width_for(num_numbers + num_words)
    register, window = log2(num_numbers + 1), num_numbers * p
    return {
        "register": register,
        "window": window,
        "hybrid": register + window,
        "pure recurrence": (num_numbers - 1) * log2(num_words),
        "pure attention": seq_len * p,
    }


# the construction -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectiveCopyHybrid(NamedWeights):
    """The hybrid of Theorem 4.3 for N numbers #1..#N, M words and sequences of L tokens; it answers at the last position.

    Args:
        num_numbers, num_words, seq_len: N, M, L.
        beta: inverse temperature; None takes `default_beta`.
        form: how the first layer is realised, see `FORMS`.
        gain: size of the pre-activation of the step in the forms G, S and block (c of the text).
        dtype: float type in which everything is computed.
        changes: weights that differ, as (map, target, source, weight); see `with_weight`. The whole block has no such maps.

    Raises:
        ValueError: N, M or L < 1, a beta below 0 or not finite, an unknown form or dtype, a gain that is not positive and finite,
        an unknown map in changes (once the maps are asked for).

    Example:
        >>> model = SelectiveCopyHybrid(3, 2, 6)
        >>> tokens = [[3, 1, 4, 3, 2, 4]]
        >>> model.task.text(tokens[0]), model.answers(tokens).tolist(), model.task.answers(tokens).tolist()
        ('a #2 b a #3 b', [3], [3])
    """

    num_numbers: int
    num_words: int
    seq_len: int
    beta: float | None = None
    form: str = "P"
    gain: float = 64.0
    dtype: str = "float64"
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        self.task  # noqa: B018  raises for bad N or M
        if isinstance(self.seq_len, bool) or not isinstance(self.seq_len, int | np.integer) or self.seq_len < 1:
            raise ValueError(f"seq_len must be an integer >= 1, got {self.seq_len!r}")
        if self.form not in FORMS:
            raise ValueError(f"form={self.form!r}: must be one of {', '.join(map(repr, FORMS))}")
        _check_beta(self.beta)
        if not 0 < self.gain < inf:
            raise ValueError(f"gain={self.gain!r}: must be positive and finite")
        if self.dtype not in SLACK:
            raise ValueError(f"dtype={self.dtype!r}: must be one of {', '.join(SLACK)}")
        if self.form == "block" and self.changes:
            raise ValueError("changes: the whole block keeps its weights in arrays, change those of `block_weights`")

    @property
    def task(self) -> SelectiveCopying:
        """The task as Definition 4.1 counts: #1 is the current token."""
        return SelectiveCopying(self.num_numbers, self.num_words, count_from="current")

    @property
    def ar(self) -> Float:
        """Floats of the chosen type."""
        return Float(dtype=self.dtype)

    @property
    def p(self) -> int:
        """Digits of a token id."""
        return width_for(self.num_numbers + self.num_words)

    @property
    def r(self) -> int:
        """Digits of a distance."""
        return width_for(self.seq_len)

    @property
    def temperature(self) -> float:
        """beta."""
        return default_beta(self.num_numbers) if self.beta is None else self.beta

    @cached_property
    def stream(self) -> Stream:
        """T, I, P, C, O; the whole block has a constant 1 besides."""
        parts = {"T": self.p, "I": 1, "P": self.r, "C": self.r, "O": self.p}
        return Stream(parts | ({"ONE": 1} if self.form == "block" else {}))

    @cached_property
    def token_codes(self) -> np.ndarray:
        """psi(id) for every id, (|V|, p) int8."""
        return binary_words(np.arange(self.num_numbers + self.num_words), self.p, bit_order="lsb", one=+1)

    @cached_property
    def embedding(self) -> SumEmbedding:
        """T and I by token, P by position."""
        size, stream = self.num_numbers + self.num_words, self.stream
        token, position = np.zeros((size, stream.dim), np.int8), np.zeros((self.seq_len, stream.dim), np.int8)
        token[:, stream.slice("T")] = self.token_codes
        token[: self.num_numbers, stream.slice("I")] = 1
        if self.form == "block":
            token[self.num_numbers :, stream.slice("I")] = -1
            token[:, stream.slice("ONE")] = 1
        distance = np.arange(self.seq_len)[::-1]
        position[:, stream.slice("P")] = binary_words(distance, self.r, bit_order="lsb", one=+1)
        return SumEmbedding(stream, token, position)

    # ------------------------------------------------------------------------------------------------- the weights

    def _maps(self) -> dict[str, Affine]:
        return self._register_maps() | self._attention_maps()

    def _write_rows(self) -> dict:
        """W_B: the digits of n - 1, of which T holds the first min(p, r); the indicator gives the others, which are -1."""
        copied = min(self.p, self.r)
        rows = {f"h[{k}]": {f"T[{k}]": 1} for k in range(copied)}
        return rows | {f"h[{k}]": {"ONE" if self.form == "block" else "I": -1} for k in range(copied, self.r)}

    def _register_maps(self) -> dict[str, Affine]:
        if self.form == "block":
            return {}
        h = Stream({"h": self.r})
        if self.form == "P":
            return {
                "W_A": Affine.from_rows(h, h, {"h": {"h": 1}}),
                "W_B": Affine.from_rows(self.stream, h, self._write_rows()),
                "W_C": Affine.from_rows(h, self.stream, {"C": {"h": 1}}),
                "Delta": Affine.from_rows(self.stream, Stream({"delta": 1}), {"delta": {"I": 1}}),
            }
        channels = 1 if self.form == "G" else self.r
        rows = {f"delta[{k}]" if channels > 1 else "delta": {"I": 2 * self.gain, "1": -self.gain} for k in range(channels)}
        maps = {
            "W_B": Affine.from_rows(self.stream, h, self._write_rows()),
            "W_C": Affine.from_rows(h, self.stream, {"C": {"h": 1}}),
            "Delta": Affine.from_rows(self.stream, Stream({"delta": channels}), rows),
        }
        if self.form == "G":
            return maps
        constants = {"B": 1 / self.gain, "C": 1}
        return maps | {name: Affine.from_rows(self.stream, Stream({name: 1}), {name: {"1": w}}) for name, w in constants.items()}

    def _attention_maps(self) -> dict[str, Affine]:
        tokens = Stream({"token": len(self.token_codes)})
        return {
            "W_q": Affine.from_rows(self.stream, Stream({"q": self.r}), {"q": {"C": self.temperature}}),
            "W_k": Affine.from_rows(self.stream, Stream({"k": self.r}), {"k": {"P": 1}}),
            "W_v": Affine.from_rows(self.stream, Stream({"v": self.p}), {"v": {"T": 1}}),
            "W_o": Affine.from_rows(Stream({"v": self.p}), self.stream, {"O": {"v": 1}}),
            "logits": Affine.from_rows(self.stream, tokens, {"token": {"O": self.token_codes.tolist()}}),
        }

    def _register_layer(self):
        if self.form == "block":
            return MambaBlock(self.ar, self.block_weights)
        ar, maps = self.ar, self.maps
        if self.form == "P":
            return euler_layer(ar, maps["W_A"], maps["W_B"], maps["W_C"], maps["Delta"])
        if self.form == "G":
            return Layer((Head(GateScan(self.r), {"x": maps["W_B"], "gate": maps["Delta"]}),), maps["W_C"])
        core = SelectiveScan(self.r, 1, ar.full((self.r, 1), -1))
        inputs = {"x": maps["W_B"], "delta": maps["Delta"], "b": maps["B"], "c": maps["C"]}
        return Layer((Head(core, inputs),), maps["W_C"])

    @cached_property
    def block_weights(self) -> dict[str, np.ndarray]:
        """The arrays of a Mamba-1 block of 2 r + 3 channels that does what the first layer does.

        Every digit has two channels, z and -z, because silu(z) - silu(-z) = z; so has the indicator, which is +-1 here. The
        last channel is constant. The convolution looks at the current token only, and the constant gate is divided out.
        """
        one, r, d = 1 / (1 + exp(-1)), self.r, self.stream.dim  # silu(1)
        channels = 2 * r + 3
        rows = Affine.from_rows(self.stream, Stream({"h": r}), self._write_rows()).dense()[0].astype(float)
        pick = {name: np.eye(d)[self.stream.slice(name)] for name in ("I", "ONE")}
        zeros, flat = np.zeros, np.zeros(channels)
        conv, x_dt, constant = zeros((channels, 4)), zeros((1, channels)), zeros((1, channels))
        conv[:, -1], x_dt[0, 2 * r], x_dt[0, 2 * r + 1], constant[0, -1] = 1, 1, -1, 1 / one
        out = zeros((d, channels))
        digits = np.arange(r)
        place = self.stream.slice("C").start + digits
        out[place, digits], out[place, r + digits] = 1 / one, -1 / one
        return {
            "in_x": np.concatenate([rows, -rows, pick["I"], -pick["I"], pick["ONE"]]),
            "in_z": np.repeat(pick["ONE"], channels, axis=0),
            "conv": conv, "conv_bias": flat, "x_dt": x_dt, "x_b": constant / self.gain, "x_c": constant,
            "dt": np.full((channels, 1), self.gain), "dt_bias": flat, "a_log": zeros((channels, 1)), "skip": flat, "out": out,
        }  # fmt: skip

    @cached_property
    def model(self) -> Model:
        """Both layers on the stream, and the logits."""
        maps = {short: self.maps[name] for short, name in (("q", "W_q"), ("k", "W_k"), ("v", "W_v"))}
        core = Attention(self.r, self.p, scale="raw", window=self.num_numbers)
        blocks = (
            Block(self._register_layer(), name="Mamba"),
            Block(Layer((Head(core, maps),), self.maps["W_o"]), name="attention"),
        )
        return Model(self.stream, self.task.vocabulary, self.embedding, blocks, self.maps["logits"])

    # --------------------------------------------------------------------------------------------------- answers

    def logits(self, tokens):
        """psi(v) . O for every token v, at the last position: (num, |V|). Raises ValueError unless there are L tokens."""
        return self.model.last_only(self.ar, self._check(tokens))

    def answers(self, tokens) -> np.ndarray:
        """The token with the largest logit, (num,); within `TIED` the lowest id wins. Meaningless where no answer is defined."""
        return _argmax(self.ar.values(self.logits(tokens)))

    def look(self, tokens) -> Look:
        """What the last position sees: register, attention weights, output (see `Look`)."""
        tokens, ar = self._check(tokens), self.ar
        first, second = self.model.blocks
        x = self.embedding.apply(ar, tokens)
        register = first.layer.last_only(ar, x)
        last = ar.add(x[..., -1, :], register)
        head = second.layer.heads[0]
        seen = x[..., -self.num_numbers :, :]
        q, k, v = head.input(ar, last, "q"), head.input(ar, seen, "k"), head.input(ar, seen, "v")
        weights = ar.softmax(ar.scores(q[..., None, :], k, "raw"))
        output = second.layer.out.apply(ar, ar.mix(weights, v)[..., 0, :])
        read = ar.values(self.stream.read(last, "C"))
        return Look(read, ar.values(weights[..., 0, :]), ar.values(output), ar.values(self.maps["logits"].apply(ar, output)))

    def _check(self, tokens) -> np.ndarray:
        tokens = self.task.check(tokens)
        if tokens.shape[-1] != self.seq_len:
            raise ValueError(f"tokens: this model is anchored at the end of {self.seq_len} tokens, got {tokens.shape[-1]}")
        return tokens

    def describe(self) -> str:
        """N, M, L, and what is not as in the theorem."""
        words = f"N = {self.num_numbers}, M = {self.num_words}, L = {self.seq_len}"
        words += "" if self.beta is None else f", beta = {self.beta:g}"
        words += "" if self.form == "P" else f", form {self.form} with gain {self.gain:g} in {self.dtype}"
        return self._with_changes(words)


@dataclass(frozen=True)
class Look:
    """At the last position: register (num, r), attention weights over the window, oldest first, (num, <= N), what the
    attention layer adds to the stream (num, d), and the logits (num, |V|); all float64."""

    register: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    logits: np.ndarray


def _check_beta(beta: float | None) -> None:
    if beta is not None and not 0 <= beta < inf:
        raise ValueError(f"beta={beta!r}: must be a finite number of at least 0, or None for the theorem's")


def _argmax(logits: np.ndarray) -> np.ndarray:
    return np.argmax(logits >= logits.max(axis=-1, keepdims=True) - TIED, axis=-1)


# every position -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RotaryCopyHybrid(NamedWeights):
    """The hybrid that answers at every position, for any length: rotary angles 2 pi / 2^f, f = 1..w(N), in place of distances.

    A number #n stores the cosines and sines of its angles 2 pi (n - 1) / 2^f; the register holds them; the query is their
    conjugate, the key a constant, so that position i gives position j the score beta sum_f cos(2 pi ((i - j) - (n - 1)) / 2^f).
    With 0 < |delta| < N the term f = v_2(delta) + 1 is cos(odd * pi) = -1, so the match is ahead by 2 beta or more.

    Args:
        num_numbers, num_words: N, M. beta: None takes `default_beta`. changes: see `with_weight`.

    Raises:
        ValueError: N or M < 1, a beta below 0 or not finite, an unknown map in changes (once the maps are asked for).

    Example:
        >>> model = RotaryCopyHybrid(3, 2)
        >>> model.labels([3, 1, 4, 3, 2, 4]).tolist()
        [-1, 3, 1, 4, 4, 3]
    """

    num_numbers: int
    num_words: int
    beta: float | None = None
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        self.task  # noqa: B018  raises for bad N or M
        _check_beta(self.beta)

    @property
    def task(self) -> SelectiveCopying:
        """The task as Definition 4.1 counts."""
        return SelectiveCopying(self.num_numbers, self.num_words, count_from="current")

    @property
    def ar(self) -> Float:
        """float64."""
        return Float()

    @property
    def k(self) -> int:
        """Frequencies, w(N)."""
        return width_for(self.num_numbers)

    @property
    def p(self) -> int:
        """Digits of a token id."""
        return width_for(self.num_numbers + self.num_words)

    @cached_property
    def stream(self) -> Stream:
        """Token, indicator, cosines and sines of the number, the register for both, output: 2 p + 4 k + 1."""
        return Stream({"T": self.p, "I": 1, "COS": self.k, "SIN": self.k, "CC": self.k, "CS": self.k, "O": self.p})

    @cached_property
    def embedding(self) -> SumEmbedding:
        """By token alone: positions come in through the rotation."""
        size, stream = self.num_numbers + self.num_words, self.stream
        table = np.zeros((size, stream.dim))
        table[:, stream.slice("T")] = binary_words(np.arange(size), self.p, bit_order="lsb", one=+1)
        table[: self.num_numbers, stream.slice("I")] = 1
        periods = 2.0 ** np.arange(1, self.k + 1)
        angle = 2 * np.pi * np.remainder(np.arange(self.num_numbers)[:, None], periods) / periods
        table[: self.num_numbers, stream.slice("COS")] = np.cos(angle)
        table[: self.num_numbers, stream.slice("SIN")] = np.sin(angle)
        return SumEmbedding(stream, table)

    def _maps(self) -> dict[str, Affine]:
        stream, k = self.stream, self.k
        beta = default_beta(self.num_numbers) if self.beta is None else self.beta
        h, size = Stream({"h": 2 * k}), self.num_numbers + self.num_words
        codes = binary_words(np.arange(size), self.p, bit_order="lsb", one=+1).tolist()
        return {
            "W_A": Affine.from_rows(h, h, {"h": {"h": 1}}),
            "W_B": Affine.from_rows(stream, h, {f"h[:{k}]": {"COS": 1}, f"h[{k}:]": {"SIN": 1}}),
            "W_C": Affine.from_rows(h, stream, {"CC": {f"h[:{k}]": 1}, "CS": {f"h[{k}:]": 1}}),
            "Delta": Affine.from_rows(stream, Stream({"delta": 1}), {"delta": {"I": 1}}),
            "W_q": Affine.from_rows(stream, Stream({"q": 2 * k}), {f"q[:{k}]": {"CC": beta}, f"q[{k}:]": {"CS": -beta}}),
            "W_k": Affine.from_rows(stream, Stream({"k": 2 * k}), {f"k[:{k}]": {"1": 1}}),
            "W_v": Affine.from_rows(stream, Stream({"v": self.p}), {"v": {"T": 1}}),
            "W_o": Affine.from_rows(Stream({"v": self.p}), stream, {"O": {"v": 1}}),
            "logits": Affine.from_rows(stream, Stream({"token": size}), {"token": {"O": codes}}),
        }

    @cached_property
    def model(self) -> Model:
        """Both layers on the stream, and the logits."""
        ar, maps = self.ar, self.maps
        look = RotaryAttention(tuple(2**f for f in range(1, self.k + 1)), self.p, scale="raw", window=self.num_numbers)
        head = Head(look, {"q": maps["W_q"], "k": maps["W_k"], "v": maps["W_v"]})
        blocks = (
            Block(euler_layer(ar, maps["W_A"], maps["W_B"], maps["W_C"], maps["Delta"]), name="Mamba"),
            Block(Layer((head,), maps["W_o"]), name="attention"),
        )
        return Model(self.stream, self.task.vocabulary, self.embedding, blocks, maps["logits"])

    def labels(self, tokens) -> np.ndarray:
        """The token copied at every position, -1 where the task defines none: (..., seq_len)."""
        tokens = self.task.check(tokens)
        found = _argmax(self.ar.values(self.model.forward(self.ar, tokens)))
        return np.where(self.task.labels(tokens) == MASKED, MASKED, found)

    def weights(self, tokens) -> np.ndarray:
        """Attention weights (..., seq_len, seq_len)."""
        ar, head = self.ar, self.model.blocks[1].layer.heads[0]
        x = dict(self.model.trace(ar, self.task.check(tokens)))["Mamba"]
        return ar.values(head.core.weights(ar, head.inputs(ar, x)))


def rotary_gap(num_numbers: int) -> float:
    """Smallest k - sum_f cos(2 pi delta / 2^f) over 0 < |delta| < N, with k = w(N): 2 for every N >= 2.

    Raises ValueError for N < 2, where there is nothing to tell apart.
    """
    if num_numbers < 2:
        raise ValueError(f"num_numbers={num_numbers}: needs two distances or more")
    delta, periods = np.arange(1, num_numbers)[:, None], 2 ** np.arange(1, width_for(num_numbers) + 1)
    return float((1 - np.cos(2 * np.pi * (delta % periods) / periods)).sum(axis=1).min())


# the saturated gate ---------------------------------------------------------------------------------------------------


def register_error(gain: float, hold: int, dtype: str = "float64") -> float:
    """Largest |h - code| of the selective scan's register within `hold` steps, against the worst input while it holds.

    One channel first stores -1, then writes +1, then reads -1 at every token, none of which is a number.
    """
    ar = Float(dtype=dtype)
    core = SelectiveScan(1, 1, ar.full((1, 1), -1))
    u = np.full((hold + 2, 1), -1.0)
    u[1] = 1
    pre = np.full((hold + 2, 1), -float(gain))
    pre[:2] = gain
    b = ar.array(np.full((hold + 2, 1), 1 / gain))
    inputs = SelectiveInputs(ar.array(u), softplus(ar, ar.array(pre)), b, ar.full((hold + 2, 1), 1))
    h = ar.values(core.scan(ar, inputs)[0])[1:, 0]
    return float(np.abs(h - 1).max())


def error_bound(gain: float, hold: int) -> float:
    """e^-c (1 + 1/c + H (1 + 1/c)): bounds |h - code| after a hold of H steps in exact arithmetic, for codes of size 1, for
    c >= 1 and H >= 1.

    The overwrite leaves at most e^-c of the old value and writes softplus(c)/c <= 1 + e^-c/c of the new one. Each step of the
    hold takes off a share of at most softplus(-c) <= e^-c and lets in at most softplus(-c)/c of the input.
    """
    return exp(-gain) * (1 + 1 / gain + hold * (1 + 1 / gain))


# checks ---------------------------------------------------------------------------------------------------------------


def defined_rows(model: SelectiveCopyHybrid, batches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(tokens, answers) of those sequences whose last position has an answer."""
    for tokens in batches:
        answers = model.task.answers(tokens)
        defined = answers != MASKED
        if defined.any():
            yield tokens[defined], answers[defined]


@dataclass(frozen=True)
class Tally:
    """A run over many sequences: how many have an answer, how many of these the model gets right, the smallest weight on
    the target, the smallest lead of its logit, and the first sequence that goes wrong."""

    defined: int
    right: int
    weight: float
    margin: float
    off_output: float
    example: dict | None


def tally(model: SelectiveCopyHybrid, batches: Iterable[np.ndarray]) -> Tally:
    """Run the model at the last position of every sequence that has an answer.

    The logits come from the model's own pass; weight and rows off O come from `look`, whose logits must be the same.

    Raises ValueError if no sequence has an answer.
    """
    defined = right = 0
    weight, margin, off, example = 1.0, np.inf, 0.0, None
    for tokens, answers in defined_rows(model, batches):
        logits, seen, rows = model.ar.values(model.logits(tokens)), model.look(tokens), np.arange(len(tokens))
        good = (_argmax(logits) == answers) & (np.abs(logits - seen.logits).max(axis=-1) < SLACK[model.dtype])
        lead = logits[rows, answers] - np.where(np.arange(logits.shape[1]) == answers[:, None], -np.inf, logits).max(axis=1)
        place = model.task.last_numbers(tokens)[:, -1]
        weight = min(weight, float(seen.weights[rows, -place].min()))
        margin = min(margin, float(lead.min()))
        off = max(off, float(np.abs(np.delete(seen.output, np.r_[model.stream.slice("O")], axis=1)).max()))
        defined, right = defined + len(tokens), right + int(good.sum())
        if not good.all() and example is None:
            row = int(np.argmin(good))
            names = model.task.vocabulary.names([answers[row], _argmax(logits)[row]])
            example = {"sequence": model.task.text(tokens[row][-40:]), "expected": names[0], "got": names[1]}
    if not defined:
        raise ValueError("batches: no sequence has an answer at its last position, so there is nothing to check")
    return Tally(defined, right, weight, margin, off, example)


def check_answers(model: SelectiveCopyHybrid, batches: Iterable[np.ndarray] | None = None, scope: str = "") -> Check:
    """Theorem 4.3 on all sequences of V^L, or on given ones: every answer right, weights and margins above their bounds.

    The bounds are p* >= 1 / (1 + (N - 1) e^(-2 beta)) and a logit lead of at least 2 (2 p* - 1), less `SLACK` for
    rounding: they are proved in exact arithmetic.
    """
    every = batches is None
    found = tally(model, model.task.every(model.seq_len) if every else batches)
    low = proved_weight(model.num_numbers, model.temperature)
    slack = SLACK[model.dtype]
    proved = found.weight >= low - slack and found.margin >= 2 * (2 * low - 1) - slack
    total = model.task.count(model.seq_len) - model.num_words**model.seq_len
    complete = not every or model.num_numbers > model.seq_len or found.defined == total
    return Check.true(
        f"the last position copies the right token ({model.describe()})",
        found.right == found.defined and proved and complete and found.off_output == 0,
        scope or f"all {model.task.count(model.seq_len):,} sequences, those without an answer left out",
        cases=found.defined,
        counterexample=found.example or {"weight": found.weight, "margin": found.margin, "off O": found.off_output},
        value={"defined": found.defined, "right": found.right, "weight": found.weight, "margin": found.margin},
    )


def random_batches(model: SelectiveCopyHybrid, num: int, seed: int, block: int = 16) -> Iterator[np.ndarray]:
    """`num` random sequences in blocks: in half of them all tokens are uniform, in the others one number stands early."""
    generator, task = Generator(seed).at(model.num_numbers, model.num_words, model.seq_len), model.task
    for start in range(0, num, block):
        size, here = min(block, num - start), generator.at(start)
        early = max(1, size // 2)
        yield task.sample_one_number(early, model.seq_len, here.at(0), max(1, model.seq_len // 10))
        if size > early:
            yield task.sample(size - early, model.seq_len, here.at(1))


def check_random(model: SelectiveCopyHybrid, num: int, seed: int = 0) -> Check:
    """`check_answers` on `num` random sequences, half of them with a single number in the first tenth."""
    return check_answers(model, random_batches(model, num, seed), f"{num} random sequences, half with one early number")


def check_every_position(model: RotaryCopyHybrid, batches: Iterable[np.ndarray], scope: str) -> Check:
    """The rotary hybrid gives the label of every position that has one; the match is ahead by the proved weight."""
    defined = wrong = 0
    example, weight = None, 1.0
    low = proved_weight(model.num_numbers, default_beta(model.num_numbers) if model.beta is None else model.beta)
    for tokens in batches:
        expected, got = model.task.labels(tokens), model.labels(tokens)
        mask, n = expected != MASKED, model.task.last_numbers(tokens)
        source = np.clip(np.arange(tokens.shape[-1]) + 1 - n, 0, tokens.shape[-1] - 1)
        on_target = np.take_along_axis(model.weights(tokens), source[..., None], axis=-1)[..., 0]
        weight = min(weight, float(on_target[mask].min(initial=1.0)))
        bad = mask & (got != expected)
        defined, wrong = defined + int(mask.sum()), wrong + int(bad.sum())
        if bad.any() and example is None:
            row, place = np.argwhere(bad)[0]
            names = model.task.vocabulary.names([expected[row, place], got[row, place]])
            example = {"sequence": model.task.text(tokens[row][: place + 1]), "expected": names[0], "got": names[1]}
    return Check.true(
        f"every position copies the right token (rotary, N = {model.num_numbers}, M = {model.num_words})",
        defined > 0 and wrong == 0 and weight >= low - TIED,
        scope,
        cases=max(defined, 1),
        counterexample=example or {"weight": weight, "proved": low},
        value={"defined": defined, "wrong": wrong, "weight": weight},
    )


def removals(model: SelectiveCopyHybrid) -> list[Removal]:
    """Set every weight of the two layers to zero in turn and run all sequences each time; meant for small domains.

    A removal is noticed if some answer goes wrong or the proved margin is lost.
    """
    return remove_each(model, lambda changed: not check_answers(changed).passed, apart=("logits",))


# figures and frames ---------------------------------------------------------------------------------------------------


def figure_sequence() -> np.ndarray:
    """The sequence of Figure 9 here (L = 100, N = 10, M = 26): words 7 i^2 + 3 i mod 26, #4 at 13, #9 at 40, #6 at 71."""
    i = np.arange(1, 101)
    tokens = 10 + (7 * i * i + 3 * i) % 26
    tokens[[12, 39, 70]] = 3, 8, 5
    return tokens


def frames(model: RotaryCopyHybrid, tokens) -> list[dict]:
    """What a reader steps through: register, attention weights and output after every token, as plain data.

    A frame holds the token names so far, the number in the register (0 for none), the weights over the window as
    (position, weight) pairs, the copied token or None, and the label.
    """
    tokens = model.task.check(tokens)
    names = model.task.vocabulary.names(tokens)
    weights, labels, found = model.weights(tokens), model.task.labels(tokens), model.labels(tokens)
    register = model.task.last_numbers(tokens)
    result = []
    for i in range(len(tokens)):
        first = max(0, i - model.num_numbers + 1)
        result.append(
            {
                "token": names[i],
                "register": int(register[i]),
                "weights": [[j + 1, round(float(weights[i, j]), 4)] for j in range(first, i + 1)],
                "copied": None if found[i] == MASKED else model.task.vocabulary.tokens[found[i]],
                "label": None if labels[i] == MASKED else model.task.vocabulary.tokens[labels[i]],
            }
        )
    return result

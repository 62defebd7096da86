"""A small circuit as a picture: inputs at the bottom, one row a level, each gate drawn over the wires that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from hybridseq.bounds.circuits.circuit import Circuit
from hybridseq.figures import COLOURS

MAX_GATES = 60
FILLS = {"NOT": "#FFFFFF", "AND": "#CFE6F5", "OR": "#FBE3B5", "input": "#E8E8E8"}


def draw(ax, circuit: Circuit, labels: Mapping[int, str] | None = None) -> None:
    """Draw a circuit of at most 60 gates into the axes; wires that carry a negated input are thin and grey.

    labels: text under the symbol of a wire number. Raises ValueError for larger circuits.
    """
    if circuit.size > MAX_GATES:
        raise ValueError(f"circuit has {circuit.size} gates; at most {MAX_GATES} can be read in a picture")
    labels, place = dict(labels or {}), _layout(circuit)
    first = len(circuit.inputs)
    for number, (kind, wires) in enumerate(circuit.gates, start=first):
        x, y = place[number]
        for w in wires:
            negated = w >= first and circuit.gates[w - first][0] == "NOT" and kind != "NOT"
            look = {"color": "#B5B5B5", "lw": 0.7} if negated else {"color": COLOURS["blue"], "lw": 1.5}
            ax.plot([place[w][0], x], [place[w][1] + 0.13, y - 0.13], zorder=1, **look)
    for number, (x, y) in place.items():
        kind = "input" if number < first else circuit.gates[number - first][0]
        symbol = circuit.inputs[number] if number < first else {"NOT": "¬", "AND": "∧", "OR": "∨"}[kind]
        ax.text(
            x, y, symbol, ha="center", va="center", fontsize=12, zorder=3,
            bbox={"boxstyle": "circle,pad=0.28", "facecolor": FILLS[kind], "edgecolor": "#404040", "linewidth": 0.9},
        )  # fmt: skip
        if number in labels:
            ax.text(x, y - 0.3, labels[number], ha="center", va="top", fontsize=9.5, zorder=4,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85})  # fmt: skip
    for name, w in circuit.outputs:
        x, y = place[w]
        ax.annotate(name, (x, y + 0.16), (x, y + 0.5), ha="center", fontsize=11, fontweight="bold",
                    arrowprops={"arrowstyle": "<-", "color": "#404040"})  # fmt: skip
    ax.set_axis_off()


def _layout(circuit: Circuit) -> dict[int, tuple[float, float]]:
    """(x, y) by wire: y is the level, x spreads each level evenly, ordered by the mean position of what a gate reads."""
    level = circuit.levels()
    first, place = len(circuit.inputs), {}
    for y in range(max(level) + 1):
        here = [w for w, at in enumerate(level) if at == y]

        def wish(w, place=place):
            wires = circuit.gates[w - first][1] if w >= first else ()
            strong = [v for v in wires if v < first] or list(wires)
            return (sum(place[v][0] for v in strong) / len(strong), w) if strong else (w, w)

        for order, w in enumerate(sorted(here, key=wish)):
            place[w] = ((order + 0.5) / len(here), 1.3 * y)
    return place

// The picture of the landing page: a prompt of parity-conditioned retrieval, the states of the recurrent layer, and the two
// look-ups of the attention layers. The states are computed as the package computes them: integers x * 2^4, every operation
// rounded to the nearest, ties toward zero, saturating. A test compares them with the package on all prompts.
(function () {
  "use strict";
  const ONE = 16, MAX = 255;
  const HALF = ONE / 2, QUARTER = ONE / 4, KAPPA = 11;  // kappa = 1/sqrt(2) rounded

  function clip(x) { return Math.max(-MAX, Math.min(MAX, x)); }
  function mul(a, b) {
    const product = Math.abs(a * b), whole = Math.floor(product / ONE);
    const rounded = product % ONE > ONE / 2 ? whole + 1 : whole;
    return clip(a * b < 0 ? -rounded : rounded);
  }
  function add(a, b) { return clip(a + b); }

  const HOLD = { alpha: 3 * QUARTER, beta: QUARTER, k: [ONE, 0], v: 0 };
  const FIRST = { alpha: 3 * QUARTER, beta: HALF, k: [KAPPA, KAPPA], v: 6 };
  const SECOND = { alpha: QUARTER, beta: 3 * QUARTER, k: [-KAPPA, KAPPA], v: 0 };

  function update(x, token) {
    const t = add(mul(x[0], token.k[0]), mul(x[1], token.k[1]));
    const c = mul(token.beta, t), w = mul(token.beta, token.v);
    return [0, 1].map(i => add(mul(token.alpha, add(x[i], -mul(c, token.k[i]))), mul(w, token.k[i])));
  }

  function run(bits, mark) {
    const tokens = bits.flatMap(bit => (bit ? [FIRST, SECOND] : [HOLD, HOLD])).concat(bits.map(() => HOLD));
    const states = [];
    let x = [0, 1];
    for (const token of tokens) { x = update(x, token); states.push(x); }
    const parity = x[0] === 0 ? 0 : 1;
    return { states, parity, bit: bits[mark], answer: bits[mark] ^ parity };
  }

  window.hybridseqOneStep = run;

  const figure = document.getElementById("one-step");
  if (!figure) return;
  const bits = [1, 0, 1, 1];
  let mark = 2;
  const n = bits.length, WIDTH = 520, HEIGHT = 268, STEP = 40, LEFT = 32;
  const column = i => LEFT + i * STEP + (i >= 2 * n ? 16 : 0);
  const TOKENS = 124, STATES = 192;

  function element(name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function arc(svg, from, to, height, kind, label) {
    const a = column(from), b = column(to), top = TOKENS - 18 - height;
    const bend = Math.min(34, Math.max(14, Math.abs(a - b) / 3));
    svg.append(element("path", {
      d: `M ${a} ${TOKENS - 20} C ${a} ${top}, ${a - 2} ${top}, ${a - bend} ${top} H ${b + bend} C ${b + 2} ${top}, ${b} ${top}, ${b} ${TOKENS - 24}`,
      class: `arc ${kind}`, "marker-end": `url(#tip-${kind})`,
    }));
    const place = kind === "value" ? { x: (a + b) / 2, y: top - 8, "text-anchor": "middle" } : { x: b - 10, y: top + 6, "text-anchor": "end" };
    svg.append(element("text", { ...place, class: `arc-label ${kind}` }, label));
  }

  function draw() {
    const result = run(bits, mark);
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const said = `Table ${bits.join(" ")}, each bit written twice, then ${n} query tokens with the mark at position ${mark + 1}. ` +
      `The recurrent layer ends in state (${result.states[3 * n - 1].join(", ")}), parity ${result.parity}. ` +
      `One attention layer looks from the last token to the mark, the next to bit ${mark + 1} of the table, which is ${result.bit}.`;
    svg.append(element("title", {}, said));
    const defs = element("defs", {});
    for (const kind of ["address", "value"]) {
      const tip = element("marker", { id: `tip-${kind}`, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
      tip.append(element("path", { d: "M 0 0 L 8 4 L 0 8 z", class: `tip ${kind}` }));
      defs.append(tip);
    }
    svg.append(defs);
    const last = 3 * n - 1;
    arc(svg, last, 2 * mark, 84, "value", `layer 3: bit ${mark + 1} of the table`);
    if (mark < n - 1) arc(svg, last, 2 * n + mark, 30, "address", "layer 2: the mark");
    else svg.append(element("text", { x: column(last) - 22, y: TOKENS - 34, class: "arc-label address", "text-anchor": "end" }, "layer 2: the mark"));
    svg.append(element("line", { x1: column(0) - 14, x2: column(last) + 14, y1: STATES, y2: STATES, class: "lane" }));
    result.states.forEach((state, i) => {
      const x = column(i), query = i >= 2 * n, marked = query && i - 2 * n === mark;
      const one = !query && bits[i >> 1] === 1, fetched = !query && i === 2 * mark;
      const box = element("g", { class: `token ${query ? "query" : "table"} ${one ? "one" : "zero"} ${marked ? "marked" : ""} ${fetched ? "fetched" : ""}` });
      box.append(element("rect", { x: x - 16, y: TOKENS - 17, width: 32, height: 34, rx: 6 }));
      box.append(element("text", { x, y: TOKENS + 6, "text-anchor": "middle" }, query ? (marked ? "?" : "–") : bits[i >> 1]));
      svg.append(box);
      const kind = state[0] === 0 ? "even" : state[1] === 0 ? "odd" : "between";
      const cell = element("g", { class: `state ${kind}` });
      cell.append(element("rect", { x: x - 15, y: STATES - 24, width: 30, height: 48, rx: kind === "between" ? 6 : 15 }));
      cell.append(element("text", { x, y: STATES - 4, "text-anchor": "middle" }, state[0]));
      cell.append(element("text", { x, y: STATES + 16, "text-anchor": "middle" }, state[1]));
      svg.append(cell);
    });
    svg.append(element("text", { x: column(0) - 16, y: STATES + 48, class: "row-label" }, "layer 1: the parity, held in two small numbers,"));
    svg.append(element("text", { x: column(0) - 16, y: STATES + 68, class: "row-label" }, "(0, 1) for even and (1, 0) for odd, in units of 1/16"));
    figure.querySelector(".one-step-picture").replaceChildren(svg);
    figure.querySelector(".one-step-answer").textContent =
      `bit ${mark + 1} is ${result.bit}, the parity is ${result.parity}: ${result.bit} ⊕ ${result.parity} = ${result.answer}, next token ${result.answer ? "YES" : "NO"}`;
  }

  function button(parent, label, describe, pressed, action) {
    const node = document.createElement("button");
    node.type = "button";
    node.addEventListener("click", () => { action(); refresh(); });
    node.refresh = () => { node.textContent = label(); node.setAttribute("aria-label", describe()); node.setAttribute("aria-pressed", String(pressed())); };
    parent.append(node);
    return node;
  }
  const buttons = [];
  bits.forEach((_, i) => {
    buttons.push(button(figure.querySelector(".one-step-bits"), () => bits[i], () => `bit ${i + 1} is ${bits[i]}`, () => bits[i] === 1, () => { bits[i] ^= 1; }));
    buttons.push(button(figure.querySelector(".one-step-marks"), () => i + 1, () => `mark bit ${i + 1}`, () => mark === i, () => { mark = i; }));
  });
  function refresh() { buttons.forEach(node => node.refresh()); draw(); }
  refresh();
})();

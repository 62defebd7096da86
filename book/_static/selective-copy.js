// Stepping through selective copying: register, attention weights and output of the rotary hybrid of chapter 11, token by token.
// The frames were computed by hybridseq.constructions.selective_copying.frames; a test computes them again and compares.
(function () {
  "use strict";
  const FRAMES = [
  {"token": "b", "register": 0, "weights": [[1, 1.0]], "copied": null, "label": null},
  {"token": "#2", "register": 2, "weights": [[1, 0.9905], [2, 0.0095]], "copied": "b", "label": "b"},
  {"token": "a", "register": 2, "weights": [[1, 0.0094], [2, 0.9812], [3, 0.0094]], "copied": "#2", "label": "#2"},
  {"token": "c", "register": 2, "weights": [[1, 0.0424], [2, 0.009], [3, 0.9396], [4, 0.009]], "copied": "a", "label": "a"},
  {"token": "b", "register": 2, "weights": [[2, 0.0424], [3, 0.009], [4, 0.9396], [5, 0.009]], "copied": "c", "label": "c"},
  {"token": "#4", "register": 4, "weights": [[3, 0.9396], [4, 0.009], [5, 0.0424], [6, 0.009]], "copied": "a", "label": "a"},
  {"token": "a", "register": 4, "weights": [[4, 0.9396], [5, 0.009], [6, 0.0424], [7, 0.009]], "copied": "c", "label": "c"},
  {"token": "c", "register": 4, "weights": [[5, 0.9396], [6, 0.009], [7, 0.0424], [8, 0.009]], "copied": "b", "label": "b"},
  {"token": "#3", "register": 3, "weights": [[6, 0.009], [7, 0.9396], [8, 0.009], [9, 0.0424]], "copied": "a", "label": "a"},
  {"token": "b", "register": 3, "weights": [[7, 0.009], [8, 0.9396], [9, 0.009], [10, 0.0424]], "copied": "c", "label": "c"},
  {"token": "#1", "register": 1, "weights": [[8, 0.009], [9, 0.0424], [10, 0.009], [11, 0.9396]], "copied": "#1", "label": "#1"},
  {"token": "a", "register": 1, "weights": [[9, 0.009], [10, 0.0424], [11, 0.009], [12, 0.9396]], "copied": "a", "label": "a"}
];

  window.hybridseqCopyFrames = FRAMES;

  const figure = document.getElementById("copy-steps");
  if (!figure) return;
  const slider = figure.querySelector("input"), picture = figure.querySelector(".copy-steps-picture");
  const said = figure.querySelector(".copy-steps-said");
  const [back, forward] = figure.querySelectorAll("button");
  const WIDTH = 560, HEIGHT = 250, LEFT = 34, STEP = 44, TOKENS = 132, REGISTER = 196, BAR = 92;

  function element(name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function words(at) {
    const frame = FRAMES[at], n = frame.register;
    const start = `Position ${at + 1} reads ${frame.token}. `;
    if (n === 0) return start + "The register is empty, so no answer is defined yet.";
    if (frame.copied === null) return start + `The register holds #${n}, which points before the first token: no answer is defined.`;
    const source = at + 2 - n, weight = frame.weights.find(pair => pair[0] === source)[1];
    return start + `The register holds #${n}; ${(100 * weight).toFixed(1)} % of the attention is on position ${source}. Copied: ${frame.copied}.`;
  }

  function draw() {
    const at = Number(slider.value) - 1, frame = FRAMES[at];
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    svg.append(element("title", {}, words(at)));
    svg.append(element("text", { x: 10, y: 18, class: "row-label" }, "attention weights inside the window"));
    const weights = new Map(frame.register === 0 ? [] : frame.weights);
    const source = frame.copied === null ? -1 : at + 1 - frame.register;
    FRAMES.forEach((other, i) => {
      const x = LEFT + i * STEP, read = i <= at;
      const number = other.token.startsWith("#");
      const box = element("g", { class: `token ${number ? "number" : "word"} ${read ? "" : "unread"} ${i === at ? "current" : ""} ${i === source ? "source" : ""}` });
      box.append(element("rect", { x: x - 18, y: TOKENS - 18, width: 36, height: 36, rx: 6 }));
      box.append(element("text", { x, y: TOKENS + 6, "text-anchor": "middle" }, other.token));
      svg.append(box);
      if (weights.has(i + 1)) {
        const height = Math.max(1.5, BAR * 0.78 * weights.get(i + 1));
        svg.append(element("rect", { x: x - 11, y: TOKENS - 24 - height, width: 22, height, class: "bar" }));
      }
      if (read) {
        const cell = element("g", { class: `register ${number ? "written" : ""} ${i === at ? "current" : ""}` });
        cell.append(element("rect", { x: x - 18, y: REGISTER - 15, width: 36, height: 30, rx: 15 }));
        cell.append(element("text", { x, y: REGISTER + 6, "text-anchor": "middle" }, other.register || "–"));
        svg.append(cell);
      }
    });
    svg.append(element("text", { x: 10, y: REGISTER + 42, class: "row-label" }, "register of the Mamba layer: the last number so far"));
    picture.replaceChildren(svg);
    said.textContent = words(at);
    slider.setAttribute("aria-valuetext", words(at));
    back.disabled = at === 0;
    forward.disabled = at === FRAMES.length - 1;
  }

  function move(by) { slider.value = String(Math.min(FRAMES.length, Math.max(1, Number(slider.value) + by))); draw(); }
  slider.max = String(FRAMES.length);
  slider.value = String(FRAMES.length);
  slider.addEventListener("input", draw);
  back.addEventListener("click", () => move(-1));
  forward.addEventListener("click", () => move(1));
  figure.querySelector(".copy-steps-controls").hidden = false;
  draw();
})();

"use strict";
// One time for all pictures of the page: the slider sets it, or the clock while it plays.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const LABEL_WIDTH = data.labelWidth, PLAY_MS = 9000, FRAME_MS = 30, MOVES = 1000;
const slider = document.getElementById("time"), shown = document.getElementById("shown");
const play = document.getElementById("play");

function inWords(s) {
  if (s < 0.001) return (s * 1e6).toFixed(0) + " µs";
  return s < 1 ? (s * 1e3).toPrecision(3) + " ms" : s.toPrecision(3) + " s";
}
function dot(parent) {
  const circle = document.createElementNS(SVG, "circle");
  circle.setAttribute("r", 4.5);
  parent.append(circle);
  return circle;
}
function put(circle, visible, x, y) {
  circle.style.display = visible ? "" : "none";
  if (visible) { circle.setAttribute("cx", x); circle.setAttribute("cy", y); }
}
function share(t, from, to) { return to > from ? Math.min(1, (t - from) / (to - from)) : 1; }

function lanesOf(svg, view) {
  // Lanes of folded operators are not shown; the others move up, and the barriers with them.
  const groups = [...svg.querySelectorAll(".group")], lanes = [...svg.querySelectorAll(".lane")];
  const lines = [...svg.querySelectorAll("line.barrier")], tops = new Map();
  const dots = lines.map(() => dot(svg.querySelector(".dots")));
  const full = [...svg.querySelectorAll(".grid, .cursor, line.mark")];
  const folded = groups.map(group => +group.dataset.folded > 0);
  function place() {
    let y = 28;
    tops.clear();
    groups.forEach((group, number) => {
      group.setAttribute("transform", `translate(0,${y})`);
      y += 20;
      for (const lane of lanes) {
        if (+lane.dataset.group !== number) continue;
        const hidden = folded[number] && lane.dataset.folded === "1";
        lane.style.display = hidden ? "none" : "";
        if (hidden) continue;
        lane.setAttribute("transform", `translate(0,${y})`);
        tops.set(lane.dataset.lane, y);
        y += +lane.dataset.height;
      }
    });
    for (const line of lines) {
      const from = tops.get(line.dataset.from), to = tops.get(line.dataset.to);
      line.style.display = from === undefined || to === undefined ? "none" : "";
      if (line.style.display) continue;
      line.setAttribute("y1", from + +line.dataset.fromY);
      line.setAttribute("y2", to + +line.dataset.toY);
    }
    for (const line of full) line.setAttribute("y2", y + 8);
    svg.setAttribute("viewBox", `0 0 ${view.width} ${y + 16}`);
  }
  groups.forEach((group, number) => {
    const count = +group.dataset.folded;
    if (!count) return;
    group.setAttribute("role", "button");
    group.setAttribute("tabindex", "0");
    const turn = () => {
      folded[number] = !folded[number];
      group.setAttribute("aria-expanded", String(!folded[number]));
      group.querySelector(".mark").textContent = folded[number] ? "▸" : "▾";
      place();
      show();
    };
    group.setAttribute("aria-expanded", "false");
    group.addEventListener("click", turn);
    group.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); turn(); }
    });
  });
  place();
  const cursor = svg.querySelector(".cursor");
  return t => {
    const x = LABEL_WIDTH + t * view.scale;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    lines.forEach((line, i) => {
      const [sent, arrived, gone] = view.lines[i];
      const visible = !line.style.display && t >= sent && t < gone;
      if (!visible) { put(dots[i], false); return; }
      const y1 = +line.getAttribute("y1"), y2 = +line.getAttribute("y2");
      put(dots[i], true, x, y1 + (y2 - y1) * share(t, sent, arrived));
    });
  };
}

function stageOf(svg, view) {
  const boxes = [...svg.querySelectorAll(".box")], queues = [...svg.querySelectorAll(".queue")];
  const dots = queues.map(() => dot(svg.querySelector(".dots")));
  return t => {
    boxes.forEach((box, i) => {
      const [waits, sent, snapshot, whole, stored] = view.boxes[i];
      const state = t >= stored ? "done" : t >= snapshot ? "async" : t >= sent ? "sync" : t >= waits ? "waits" : "";
      box.setAttribute("class", "box " + state);
    });
    queues.forEach((queue, i) => {
      const one = view.queues[i], [x1, y1, x2, y2] = one.at, [sent, arrived, gone] = one.times;
      const part = t < arrived ? share(t, sent, arrived) / 2 : 0.5 + share(t, arrived, gone) / 2;
      put(dots[i], t >= sent && t < gone, x1 + (x2 - x1) * part, y1 + (y2 - y1) * part);
      queue.classList.toggle("blocked", one.blocked !== null && t >= one.blocked[0] && t < one.blocked[1]);
      queue.firstElementChild.classList.toggle("captured", one.out && t >= sent);
      queue.lastElementChild.classList.toggle("captured", one.in && t >= one.snapshot);
    });
  };
}

const timelines = [...document.querySelectorAll("svg.timeline")];
const stages = [...document.querySelectorAll("svg.stage")];
const showers = data.views.flatMap((view, i) => [lanesOf(timelines[i], view), stageOf(stages[i], view)]);

let now = data.end, playing = null;
function show() { for (const each of showers) each(now); }
function goTo(t) {
  now = Math.max(0, Math.min(data.end, t));
  slider.value = Math.round(MOVES * now / data.end);
  const words = inWords(now) + " of " + inWords(data.end);
  slider.setAttribute("aria-valuetext", words);
  shown.textContent = words;
  show();
}
function stop() {
  if (playing !== null) clearInterval(playing);
  playing = null;
  play.textContent = "Play";
}
play.addEventListener("click", () => {
  if (playing !== null) { stop(); return; }
  play.textContent = "Pause";
  const begin = performance.now() - (now >= data.end ? 0 : PLAY_MS * now / data.end);
  playing = setInterval(() => {
    goTo(data.end * (performance.now() - begin) / PLAY_MS);
    if (now >= data.end) stop();
  }, FRAME_MS);
});
slider.addEventListener("input", () => { stop(); goTo(data.end * slider.value / MOVES); });
const wanted = new URLSearchParams(location.hash.slice(1)).get("at");
goTo(wanted === null ? data.end : data.end * wanted);

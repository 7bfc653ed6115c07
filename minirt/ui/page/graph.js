// The job as a graph: what each chain does with its time, and what flows between them.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { Graph as Dag, layout } from "./vendor/dagre.js";
import { duration, percent, rate, shortened } from "./format.js";

const WIDTH = 236, HEIGHT = 112, LINE = 17, LABEL = 104, NARROW = 700, SHRUNK = 0.75;
export const TIMES = {
  busy: "busy", idle: "idle", soft: "soft backpressure", hard: "hard backpressure", drift: "drift: waits for slower sources",
};

export function placed(operators, links, downwards, tall) {
  const dag = new Dag({ multigraph: true });
  dag.setGraph({ rankdir: downwards ? "TB" : "LR", nodesep: 24, ranksep: 44, marginx: 6, marginy: 6 });
  dag.setDefaultEdgeLabel(() => ({}));
  for (const one of operators) dag.setNode(String(one.id), { width: WIDTH, height: tall });
  links.forEach((link, place) => {
    const label = { width: LABEL, height: 44, labelpos: downwards ? "r" : "c", place };
    dag.setEdge(String(link.source), String(link.target), label, String(place));
  });
  layout(dag);
  const nodes = operators.map((one) => dag.node(String(one.id)));
  const edges = links.map((link, i) => dag.edge(String(link.source), String(link.target), String(i)));
  const { width, height } = dag.graph();
  return { nodes, edges, width, height };
}

export function JobGraph({ operators, links, leftOut, chosen, onChoose }) {
  const box = useRef(null);
  const [width, setWidth] = useState(window.innerWidth);
  useEffect(() => {
    const sized = new ResizeObserver(() => setWidth(box.current ? box.current.clientWidth : 0));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const downwards = width < NARROW;
  const tall = operators.some((one) => one.latency) ? HEIGHT + LINE : HEIGHT;
  const shape = JSON.stringify([operators.map((o) => o.id), links.map((l) => [l.source, l.target]), downwards, tall]);
  const at = useMemo(() => placed(operators, links, downwards, tall), [shape]);
  useEffect(() => {
    if (box.current) box.current.scrollLeft = (box.current.scrollWidth - box.current.clientWidth) / 2;
  }, [shape]);
  if (!operators.length) return html`<p ref=${box} class="muted">Nothing is known of its graph.</p>`;
  const scale = Math.max(SHRUNK, Math.min(1, width / at.width)); // Smaller could not be read: it scrolls.
  return html`<div ref=${box} class="scrolls" tabindex="0" role="group" aria-label="job graph">
    <svg class="graph" width=${at.width * scale} height=${at.height * scale} viewBox=${`0 0 ${at.width} ${at.height}`}>
      <${Patterns} />
      ${links.map((link, i) => html`<${Edge} key=${i} link=${link} at=${at.edges[i]} />`)}
      ${operators.map((one, i) => html`<${Node} key=${one.id} one=${one} at=${at.nodes[i]} tall=${tall}
          chosen=${chosen === one.id} onChoose=${onChoose} />`)}
    </svg>
    ${leftOut > 0 && html`<p class="muted">and ${leftOut} more operators</p>`}
  </div>`;
}

// Signs beside colours: soft backpressure is hatched, hard crossed, drift dotted, idle is empty.
function Patterns() {
  return html`<defs>
    <pattern id="soft" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="6" height="6" class="soft-ground" /><rect width="3" height="6" class="soft" /></pattern>
    <pattern id="hard" width="6" height="6" patternUnits="userSpaceOnUse">
      <rect width="6" height="6" class="hard-ground" /><path d="M0 0L6 6M6 0L0 6" class="hard-line" /></pattern>
    <pattern id="drift" width="6" height="6" patternUnits="userSpaceOnUse">
      <rect width="6" height="6" class="idle-ground" /><circle cx="3" cy="3" r="1.6" class="drift" /></pattern>
    <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="11" orient="auto">
      <path d="M0 0L8 4L0 8Z" class="arrow" /></marker>
  </defs>`;
}

function Edge({ link, at }) {
  const [first, ...rest] = at.points;
  const path = `M${first.x} ${first.y}` + rest.map((p) => `L${p.x} ${p.y}`).join("");
  const fill = Math.max(link.out ?? 0, link.in ?? 0);
  const full = fill >= 0.8;
  const queues = link.in == null ? "" : `${percent(link.out)} › ${percent(link.in)}`;
  const words = `${rate(link.rate)}, output queue ${percent(link.out)} full, input queue ${percent(link.in)} full`;
  return html`<g class=${full ? "edge full" : "edge"}>
    <title>${link.kind} ${words}</title>
    <path d=${path} marker-end="url(#arrow)" />
    ${link.rate != null && html`<text x=${at.x} y=${at.y - 7} text-anchor="middle" class="strong">${rate(link.rate)}</text>`}
    <text x=${at.x} y=${at.y + 18} text-anchor="middle" class="small">${full ? "▲ " : ""}${queues}</text>
  </g>`;
}

function Node({ one, at, tall, chosen, onChoose }) {
  const x = at.x - WIDTH / 2, y = at.y - tall / 2;
  const waits = one.times ? one.times.soft + one.times.hard : null;
  const state = !one.times ? "" : waits >= 0.1 ? "waiting" : (one.busiest?.share ?? one.times.busy) >= 0.8 ? "working" : "";
  const words = one.times
    ? `busy ${percent(one.times.busy)}, waits ${percent(waits)}`
    : "no rates known";
  const choose = () => onChoose(chosen ? null : one.id);
  const onKey = (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
  };
  return html`<g class=${`node ${state} ${chosen ? "chosen" : ""}`} transform=${`translate(${x} ${y})`}
      tabindex="0" role="button" aria-pressed=${String(chosen)} data-operator=${one.uid}
      aria-label=${`${one.name}, ${one.parallelism} subtasks, ${words}`} onClick=${choose} onKeyDown=${onKey}>
    <title>${one.name}</title>
    <rect class="card" width=${WIDTH} height=${tall} rx="6" />
    <text x="10" y="19" class="strong">${shortened(one.name, 23 - String(one.parallelism).length)}</text>
    <text x=${WIDTH - 10} y="19" text-anchor="end" class="small">×${one.parallelism}</text>
    <${TimeBar} times=${one.times} />
    <text x="10" y="56" class="small">${state === "waiting" ? "◧ " : state === "working" ? "● " : ""}${words}</text>
    <text x="10" y="73" class="small">${one.lag_s == null ? "no watermark" : `watermark ${duration(one.lag_s)} behind`}</text>
    ${one.latency && html`<text x="10" y=${73 + LINE} class="small">
      <title>half of the latency markers / 99 % of them, from a source until here</title>
      latency ${duration(one.latency.p50_s)} / ${duration(one.latency.p99_s)}</text>`}
    <${Cells} cells=${one.cells} bottom=${tall - 8} />
    <text x=${WIDTH - 10} y=${tall - 14} text-anchor="end" class="small">${skewed(one)}</text>
  </g>`;
}

function skewed(one) {
  if (!one.skew) return "";
  const uneven = one.skew.times_fair >= 1.5;
  return uneven ? `▲ skew ${one.skew.times_fair.toFixed(1)}×` : "even";
}

function TimeBar({ times }) {
  if (!times) return html`<rect x="10" y="28" width=${WIDTH - 20} height="12" class="idle-ground" />`;
  const room = WIDTH - 20;
  let x = 10;
  return Object.keys(TIMES).map((name) => {
    const width = Math.max(0, Math.min(1, times[name])) * room;
    const bar = html`<rect key=${name} x=${x} y="28" width=${width} height="12" class=${`time-${name}`}>
      <title>${TIMES[name]} ${percent(times[name])}</title></rect>`;
    x += width;
    return bar;
  });
}

// A bar for each subtask, or for each few: how busy it is.
function Cells({ cells, bottom }) {
  const step = Math.min(10, 118 / Math.max(1, cells.length)); // Beside them is room for the skew.
  return cells.map((cell, i) => {
    const height = Math.max(1, Math.min(1, cell.busy) * 20);
    const who = cell.first === cell.last ? `subtask ${cell.first + 1}` : `subtasks ${cell.first + 1} to ${cell.last + 1}`;
    return html`<rect key=${cell.first} x=${10 + i * step} y=${bottom - height} width=${Math.max(1, step - 1)}
      height=${height} class=${cell.blocked >= 0.1 ? "cell-blocked" : "cell"}>
      <title>${who}: busy ${percent(cell.busy)}, waits ${percent(cell.blocked)}</title></rect>`;
  });
}

export function Legend({ latency }) {
  return html`<ul class="legend" aria-label="legend of times">
    ${Object.entries(TIMES).map(([name, words]) => html`<li key=${name}>
      <svg width="18" height="12"><rect width="18" height="12" class=${`time-${name}`} /></svg> ${words}</li>`)}
    <li>on arrows: records/s, output queue › input queue; ▲ almost full</li>
    <li>small bars: how busy each subtask is</li>
    ${latency && html`<li>latency: from a source until here, half of the markers / 99 %</li>`}
  </ul>`;
}

// Verdict, lines over time, tables, events, configuration.

import { html } from "./vendor/htm-preact.js";
import { count, dateTime, duration, percent, rate, time } from "./format.js";

// Chains often begin alike: where there is no room, the middle of a name gives way.
export function Who({ name, number, of }) {
  const end = name.length > 16 ? name.slice(-8) : "";
  return html`<span class="who"><span>${name.slice(0, name.length - end.length)}</span>${end && html`<i>${end}</i>`}${
    of && html`<b>${number}/${of}</b>`}</span>`;
}

const SIGNS = { good: "✓", note: "●", bad: "▲" };

export function Verdict({ sentences, advice, onChoose }) {
  return html`<section class="verdict" aria-label="verdict" aria-live="polite">
    ${sentences.map((one, i) => html`<p key=${i} class=${one.level}>
      <span class="sign" aria-hidden="true">${SIGNS[one.level]}</span>
      <span>${one.text} ${one.operator != null && html`<button class="link"
        onClick=${() => onChoose(one.operator)}>show</button>`}</span></p>`)}
    ${advice && html`<p class="muted"><span class="sign"></span><span>Advice by its own figures: <code>${advice}</code></span></p>`}
  </section>`;
}

const LATENCIES = [["p50_s", "half within"], ["p99_s", "99 % within"]];
const LINES = [
  ["records/s", [["read", "read"], ["written", "written"]], rate],
  ["latency, from source to the slowest sink", LATENCIES, duration],
  ["watermark lag", [["lag_s", "furthest behind"]], duration],
  ["fullest input queue", [["queue", "use"]], percent],
];

// Nothing known is no line: a flat one would say zero.
const known = (lines, points) => points.some((point) => lines.some(([name]) => point[name] != null));

export function Course({ points, latencyInterval }) {
  return html`<section class="panel course" aria-labelledby="h-course"><h2 id="h-course">Last five minutes</h2>
    ${points.length < 2 ? html`<p class="muted">Lines begin while this page is open.</p>` : ""}
    ${LINES.map(([title, lines, words]) => known(lines, points) && html`<${Line} key=${title} title=${title} lines=${lines} shown=${words} points=${points} />`)}
    ${latencyInterval == null
      ? html`<p class="muted">Latency is not measured: start the job with <code>--set options.latency_interval=1s</code> to see it.</p>`
      : !known(LATENCIES, points) && html`<p class="muted">Latency: no marker of a source has reached a sink yet. In a job that is a single chain none will.</p>`}
  </section>`;
}

function Line({ title, lines, shown, points }) {
  const values = points.flatMap((point) => lines.map(([name]) => point[name])).filter((v) => v != null);
  const highest = Math.max(0, ...values);
  const most = highest || 1; // A line of zeros lies on the axis.
  const last = points.at(-1) ?? {};
  const now = lines.map(([name, words]) => `${words} ${shown(last[name])}`).join(", ");
  const key = (i) => lines.length > 1 && html`<svg class="key" viewBox="0 0 22 8" aria-hidden="true"><path class=${`line line-${i}`} d="M1 4H21" /></svg>`;
  const begin = points.length ? points[0].at : 0, end = (points.at(-1)?.at ?? 1) || 1;
  const x = (at) => (300 * (at - begin)) / Math.max(1, end - begin);
  const path = (name) => points.filter((p) => p[name] != null)
    .map((p, i) => `${i ? "L" : "M"}${x(p.at).toFixed(1)} ${(40 - (38 * p[name]) / most).toFixed(1)}`).join("");
  return html`<figure><figcaption><strong>${title}</strong> ${
      lines.map(([name, words], i) => html`<span key=${name} class="nowrap">${key(i)}${words} ${shown(last[name])}${i + 1 < lines.length ? ", " : ""}</span>`)}${values.length ? `; most ${shown(highest)}` : ""}</figcaption>
    <svg viewBox="0 0 300 42" preserveAspectRatio="none" role="img" aria-label=${`${title}: ${now}`}>
      <path class="axis" d="M0 41H300" />
      ${lines.map(([name], i) => html`<path key=${name} class=${`line line-${i}`} d=${path(name)} />`)}</svg></figure>`;
}

export function Ranking({ title, rows }) {
  return html`<section class="panel"><h2>${title}</h2>
    ${rows.length ? html`<div class="scrolls" tabindex="0" role="group" aria-label=${title}><table class="ranking">
      <thead><tr><th>subtask</th><th title="share of its time that it works">busy</th>
        <th title="share of its time that it has input and no room for its output">waits</th><th title="that it takes in">records/s</th>
        <th title="how far its event time is behind the clock">behind</th><th title="the number of its process">process</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${`${row.uid} ${row.subtask}`}>
        <th scope="row" title=${row.name}><${Who} name=${row.name} number=${row.subtask + 1} of=${row.of} /></th>
        <td>${percent(row.busy)}</td><td>${percent(row.blocked)}</td><td>${count(row.records_in)}</td>
        <td>${duration(row.lag_s)}</td><td>${row.pid ?? "–"}</td></tr>`)}</tbody></table></div>`
      : html`<p class="muted">None known.</p>`}
  </section>`;
}

export function Events({ events }) {
  return html`<section class="panel" aria-labelledby="h-events"><h2 id="h-events">Restarts and ends</h2>
    ${events.length ? [...events].reverse().map((one) => html`<details key=${`${one.at} ${one.event}`}>
      <summary>${dateTime(one.at)} <strong>${one.event}</strong> <span class="muted">generation ${one.generation}</span>
        <span class="cause">${one.short ?? ""}</span></summary>
      <pre tabindex="0">${one.cause ?? "no cause given"}</pre></details>`)
      : html`<p class="muted">None.</p>`}
  </section>`;
}

export function Log({ lines, operator }) {
  const shown = operator ? lines.filter((one) => operator.uids.includes(one.operator)) : lines;
  const who = (one) => (one.operator == null ? one.logger : `${one.operator}${one.subtask == null ? "" : ` ${one.subtask + 1}`}`);
  return html`<section class="panel" aria-labelledby="h-log"><h2 id="h-log">Log of workers${operator ? `: “${operator.name}”` : ""}</h2>
    ${shown.length ? html`<ol class="log" tabindex="0" aria-label="newest messages first">${[...shown].reverse().map((one, i) => html`
      <li key=${`${one.at} ${i}`} class=${one.level.toLowerCase()}><span class="muted">${time(one.at)}</span> <strong>${one.level}</strong>
        <em>${who(one)}</em> <span class="text">${one.text}</span></li>`)}</ol>`
      : html`<p class="muted">No messages yet. Workers send those of their log level, as a rule from warnings on.</p>`}
  </section>`;
}

export function Configuration({ told, storage }) {
  const entries = Object.entries(told);
  return html`<section class="panel" aria-labelledby="h-config"><h2 id="h-config">Configuration</h2>
    <p class="muted">storage: ${storage ?? "none: this job takes no checkpoints"}</p>
    ${entries.length > 0 && html`<details><summary>${entries.length} ${entries.length === 1 ? "option" : "options"}</summary>
      <dl>${entries.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value || "–"}</dd></div>`)}</dl></details>`}
  </section>`;
}

// The last checkpoints as a strip, and one of them by subtask.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { bytes, count, duration, time } from "./format.js";
import { Who } from "./panels.js";

const PHASES = ["start delay", "alignment", "synchronous", "asynchronous"];
const MARKS = { completed: "", failed: "✕" };

async function fetched(path) {
  const response = await fetch(path);
  const told = await response.json();
  if (!response.ok) throw new Error(told.error ?? response.statusText);
  return told;
}

export function Checkpoints({ snapshot }) {
  const [chosen, setChosen] = useState(null); // null follows the newest
  const [older, setOlder] = useState(null);
  const [error, setError] = useState(null);
  const strip = older ?? snapshot.strip;
  const choose = async (one) => {
    try {
      setError(null);
      const path = `/api/checkpoint?id=${one.checkpoint_id}&generation=${one.generation}`;
      setChosen({ key: key(one), timeline: await fetched(path) });
    } catch (problem) { setError(problem.message); }
  };
  const turn = async (end) => {
    try {
      setError(null);
      setOlder(end >= snapshot.strip.total ? null : await fetched(`/api/checkpoints?end=${end}`));
    } catch (problem) { setError(problem.message); }
  };
  const follow = () => { setChosen(null); setOlder(null); };
  const shown = chosen ? [chosen.timeline] : snapshot.timelines;
  const { durations, checkpoints } = snapshot;
  const completed = shown.find((one) => !one.under_way && one.status === "completed");
  return html`<section class="panel checkpoints" aria-labelledby="h-checkpoints">
    <div class="head"><h2 id="h-checkpoints">Checkpoints</h2>
      <span class="muted">${count(checkpoints.completed)} completed, ${count(checkpoints.failed)} failed${
        durations ? `; median ${duration(durations.p50)}, 95 % within ${duration(durations.p95)}, longest ${duration(durations.max)}` : ""}</span>
    </div>
    <${Strip} strip=${strip} chosen=${chosen?.key ?? (shown.length ? key(shown[0]) : null)} onChoose=${choose} />
    <div class="buttons">
      <button disabled=${strip.first <= 0} onClick=${() => turn(strip.first)}>Older</button>
      <button disabled=${strip.end >= snapshot.strip.total} onClick=${() => turn(strip.end + strip.shown.length)}>Newer</button>
      <button aria-pressed=${String(chosen === null && older === null)} onClick=${follow}>Follow the newest</button>
      <span class="muted">${strip.total ? `${strip.first + 1} to ${strip.end} of ${strip.total}; ✕ failed, S savepoint, u barriers overtook records` : ""}</span>
    </div>
    ${error && html`<p role="alert" class="bad">${error}</p>`}
    ${checkpoints.last_failure && html`<p class="failure">✕ Last failed checkpoint: ${checkpoints.last_failure}</p>`}
    ${shown.map((one) => html`<${Timeline} key=${key(one)} one=${one} />`)}
    ${shown.length === 0 && html`<p class="muted">${snapshot.storage == null
      ? "This job takes no checkpoints: it was started without a storage for them." : "No checkpoint has completed yet."}</p>`}
    ${completed && snapshot.live && html`<p class="muted">${snapshot.configuration["options.trace"] === "True"
      ? html`Its barriers as a picture: <code>minirt checkpoints picture ${snapshot.storage} ${completed.checkpoint_id} --html picture.html</code>`
      : html`A picture of its barriers needs a trace: start the job with <code>--set options.trace=true</code>.`}</p>`}
  </section>`;
}

function key(one) { return `${one.checkpoint_id}/${one.generation}`; }

function Strip({ strip, chosen, onChoose }) {
  const box = useRef(null);
  const longest = Math.max(0.001, ...strip.shown.map((one) => one.duration_s));
  const keys = strip.shown.map(key);
  const current = Math.max(0, keys.includes(chosen) ? keys.indexOf(chosen) : keys.length - 1);
  useEffect(() => { if (box.current) box.current.scrollLeft = box.current.scrollWidth; }, [strip.end]);
  const onKey = (event) => {
    const steps = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: keys.length - 1 };
    const next = steps[event.key];
    if (next === undefined || !strip.shown[next]) return;
    event.preventDefault();
    onChoose(strip.shown[next]);
    box.current.children[next].focus();
  };
  if (!strip.shown.length) return null;
  return html`<div class="strip" role="listbox" aria-label="checkpoints, oldest first; height is duration"
      aria-orientation="horizontal" ref=${box} onKeyDown=${onKey}>
    ${strip.shown.map((one, i) => html`<button key=${keys[i]} role="option" tabindex=${i === current ? 0 : -1}
        aria-selected=${String(keys[i] === chosen)} class=${`bar ${one.status}`} title=${words(one)} aria-label=${words(one)}
        onClick=${() => onChoose(one)}>
      <span class="mark">${mark(one)}</span>
      <span class="fill" style=${{ height: `${Math.max(4, (100 * one.duration_s) / longest)}%` }}></span>
    </button>`)}
  </div>`;
}

function mark(one) {
  if (one.status !== "completed") return MARKS.failed;
  return one.kind === "savepoint" ? "S" : one.unaligned ? "u" : "";
}

function words(one) {
  const how = one.reason ? `failed: ${one.reason}` : one.unaligned ? "completed, barriers overtook records" : "completed";
  const size = one.bytes == null ? "" : `, ${bytes(one.bytes)}, ${bytes(one.in_flight_bytes)} in flight`;
  return `${one.kind} ${one.checkpoint_id}, ${one.mode}, ${time(one.triggered_at)}, ${duration(one.duration_s)}, ${how}${size}`;
}

function Timeline({ one }) {
  const longest = Math.max(0.001, one.so_far_s ?? 0, ...one.rows.map((row) => row.stored_s ?? 0));
  const status = one.under_way ? "being taken" : one.status;
  const label = `checkpoint ${one.checkpoint_id}: subtasks and their phases, those that were last on top`;
  return html`<div class="timeline">
    <h3>checkpoint ${one.checkpoint_id} <span class="muted">${one.kind === "checkpoint" ? "" : `${one.kind}, `}${one.mode}, ${status}, ${duration(one.so_far_s)}${
      one.bytes == null ? "" : `, ${bytes(one.bytes)}, ${bytes(one.in_flight_bytes)} of them in flight`}</span></h3>
    ${one.reason && html`<p class="failure">✕ ${one.reason}</p>`}
    <ul class="legend">${PHASES.map((name, i) => html`<li key=${name}><span class=${`swatch phase-${i}`}></span> ${name}</li>`)}
      <li><span class="swatch phase-missing"></span> not stored</li></ul>
    <table class="gantt"><caption class="hidden">${label}</caption>
      <colgroup><col class="c-name" /><col /><col class="c-number" /></colgroup>
      <tbody>${one.rows.map((row, i) => html`<${Row} key=${`${row.name} ${row.number ?? i}`} row=${row} longest=${longest} so_far=${one.so_far_s} />`)}</tbody>
    </table>
    ${one.others && html`<p class="muted">and ${one.others.count} more subtasks${
      one.others.missing ? `, ${one.others.missing} of them not stored` : ""}${
      one.others.max_s == null ? "" : `: median ${duration(one.others.median_s)}, longest ${duration(one.others.max_s)}`}</p>`}
  </div>`;
}

function Row({ row, longest, so_far }) {
  const name = row.of ? `${row.name} ${row.number}/${row.of}` : row.name;
  const share = (seconds) => `${(100 * Math.max(0, seconds)) / longest}%`;
  const said = row.missing ? "not stored" : duration(row.stored_s);
  const phases = row.missing ? [] : PHASES.map((phase, i) => `${phase} ${duration(row.phases[i])}`);
  return html`<tr class=${row.outlier ? "outlier" : ""}>
    <th scope="row" title=${name}><${Who} name=${row.name} number=${row.number} of=${row.of} /></th>
    <td class="track" title=${phases.join(", ")}><div class="segments">${row.missing
      ? html`<span class="phase-missing" style=${{ width: share(so_far ?? longest) }}></span>`
      : row.phases.map((seconds, i) => html`<span key=${i} class=${`phase-${i}`} style=${{ width: share(seconds) }}></span>`)}
      </div><span class="hidden">${phases.join(", ")}</span></td>
    <td class="number">${row.outlier ? "▲ " : ""}${said}${row.unaligned ? " u" : ""}</td>
  </tr>`;
}

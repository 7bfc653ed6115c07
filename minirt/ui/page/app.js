// The page: one snapshot a second by server-sent events, and everything on it drawn from that.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { Actions } from "./actions.js";
import { Checkpoints } from "./checkpoints.js";
import { span } from "./format.js";
import { JobGraph, Legend } from "./graph.js";
import { Configuration, Course, Events, Log, Ranking, Verdict } from "./panels.js";

const LATE_MS = 5000;

// The token has become a cookie: it need not stay in the address bar and the history.
if (location.search) history.replaceState(null, "", "/");

function useSnapshots() {
  const [snapshot, setSnapshot] = useState(null);
  const [trouble, setTrouble] = useState(null);
  useEffect(() => {
    let stream = null, late = 0;
    const heard = () => {
      clearTimeout(late);
      late = setTimeout(() => setTrouble("Nothing new has come for some seconds."), LATE_MS);
    };
    const open = () => {
      if (stream || document.hidden) return;
      stream = new EventSource("/api/events");
      stream.onmessage = (event) => {
        const told = JSON.parse(event.data);
        heard();
        setTrouble(told.error ?? null);
        if (!told.error) setSnapshot(told);
      };
      stream.onerror = () => setTrouble("The server of this page does not answer. Does `minirt ui` still run?");
    };
    const close = () => { clearTimeout(late); stream?.close(); stream = null; };
    const onVisible = () => (document.hidden ? close() : open());
    document.addEventListener("visibilitychange", onVisible);
    open();
    return () => { close(); document.removeEventListener("visibilitychange", onVisible); };
  }, []);
  return [snapshot, trouble];
}

function App() {
  const [snapshot, trouble] = useSnapshots();
  const [chosen, setChosen] = useState(null);
  useEffect(() => { if (snapshot) document.title = `${snapshot.job.name} ${snapshot.job.status}`; },
    [snapshot?.job.name, snapshot?.job.status]);
  if (!snapshot) return html`<p class="loading" role="status">${trouble ?? "Loading ..."}</p>`;
  const { job, operators } = snapshot;
  const operator = operators.find((one) => one.id === chosen);
  return html`
    <header><div><h1>${job.name}</h1>
      <p class="facts"><strong class=${`status ${job.status}`}>${job.status}</strong>
        <span>up ${span(job.at - job.started_at)}</span><span title="how often the job was started or has restarted">generation ${job.generation}</span>
        <span>${job.restarts} ${job.restarts === 1 ? "restart" : "restarts"}</span>
        ${job.comebacks > 0 && html`<span title="workers that came back alone, while all others went on">
          ${job.comebacks} ${job.comebacks === 1 ? "comeback" : "comebacks"}</span>`}</p></div>
      ${snapshot.actions.length > 0 && html`<${Actions} offered=${snapshot.actions} />`}</header>
    <main>
      ${trouble && html`<p class="trouble" role="alert">▲ ${trouble}</p>`}
      ${snapshot.note && html`<p class="remark">${snapshot.note}</p>`}
      <${Verdict} sentences=${snapshot.verdict} advice=${snapshot.advice} onChoose=${setChosen} />
      <section class="panel wide" aria-labelledby="h-graph"><div class="head"><h2 id="h-graph">Job graph</h2>
        ${operator && html`<button class="link" onClick=${() => setChosen(null)}>“${operator.name}” is chosen; show all</button>`}</div>
        <${JobGraph} operators=${operators} links=${snapshot.links} leftOut=${snapshot.operators_left_out}
          chosen=${chosen} onChoose=${setChosen} />${operators.length > 0 && html`<${Legend} latency=${operators.some((one) => one.latency)} />`}</section>
      <div class="columns"><div class="column">
        <${Checkpoints} snapshot=${snapshot} /></div>
      <div class="column">
        ${snapshot.live && html`<${Course} points=${snapshot.course} latencyInterval=${snapshot.latency_interval_s} />`}
        ${(snapshot.live || snapshot.busiest.length > 0) && html`<${Ranking} title=${operator ? `Busiest subtasks of “${operator.name}”` : "Busiest subtasks"} rows=${operator ? operator.top : snapshot.busiest} />`}
        ${snapshot.lagging.length > 0 && html`<${Ranking} title="Most lagging subtasks" rows=${snapshot.lagging} />`}
        <${Events} events=${snapshot.events} />
        ${(snapshot.live || snapshot.logs.length > 0) && html`<${Log} lines=${snapshot.logs} operator=${operator} />`}
        <${Configuration} told=${snapshot.configuration} storage=${snapshot.storage} /></div></div>
    </main>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);

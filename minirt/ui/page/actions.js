// What a running job can be asked to do. Each asks once more before it does so.

import { html, useRef, useState } from "./vendor/htm-preact.js";

const ACTIONS = {
  savepoint: {
    title: "Savepoint", does: "Take a savepoint; the job goes on.",
    fields: [["path", "Folder or URL; empty for the job's own storage", "text"]],
  },
  stop: {
    title: "Stop", does: "End the job with a savepoint, from which it can go on.",
    fields: [["path", "Folder or URL; empty for the job's own storage", "text"],
      ["drain", "Drain: as if the input had ended", "checkbox"]],
  },
  cancel: { title: "Cancel", does: "End the job now, without a last checkpoint.", fields: [] },
  rescale: {
    title: "Rescale", does: "Stop the job with a savepoint, and go on from there at another parallelism.",
    fields: [["parallelism", "New parallelism", "number"]],
  },
};

export function Actions({ offered }) {
  const [said, setSaid] = useState(null);
  const [working, setWorking] = useState(null);
  const ask = async (action, given) => {
    setWorking(action);
    setSaid({ text: `${ACTIONS[action].title} …`, good: true });
    try {
      const response = await fetch(`/api/${action}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given),
      });
      const told = await response.json();
      if (!response.ok) throw new Error(told.error ?? response.statusText);
      const where = told.path ?? told.savepoint;
      setSaid({ text: `${ACTIONS[action].title}: done${where ? `, ${where}` : ""}`, good: true });
    } catch (problem) {
      setSaid({ text: `${ACTIONS[action].title}: ${problem.message}`, good: false });
    }
    setWorking(null);
  };
  return html`<div class="actions">
    ${offered.map((action) => html`<${Action} key=${action} action=${action} disabled=${working !== null} onAsk=${ask} />`)}
    <p role="status" class=${said && !said.good ? "said bad" : "said"}>${said?.text}</p>
  </div>`;
}

function Action({ action, disabled, onAsk }) {
  const dialog = useRef(null);
  const { title, does, fields } = ACTIONS[action];
  const submit = (event) => {
    event.preventDefault();
    const given = {};
    for (const [name, , type] of fields) {
      const field = event.target.elements[name];
      given[name] = type === "checkbox" ? field.checked : type === "number" ? Number(field.value) : field.value;
    }
    dialog.current.close();
    onAsk(action, given);
  };
  return html`<button disabled=${disabled} onClick=${() => dialog.current.showModal()}>${title}</button>
    <dialog ref=${dialog} aria-label=${title}><form onSubmit=${submit}>
      <h2>${title}</h2><p>${does}</p>
      ${fields.map(([name, words, type]) => html`<label key=${name} class=${type}>${words}
        <input name=${name} type=${type} min=${type === "number" ? 1 : null} required=${type === "number"} /></label>`)}
      <div class="buttons"><button type="submit" class=${action === "cancel" ? "danger" : "primary"}>${title}</button>
        <button type="button" onClick=${() => dialog.current.close()}>Do nothing</button></div>
    </form></dialog>`;
}

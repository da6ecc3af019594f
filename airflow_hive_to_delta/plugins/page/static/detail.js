// One table: what is known of it, what has become of it, and what a person may decide about it.
import { decide, readTable } from "./api.js";
import { airflow, breakable, element, fill, formatBytes, formatCount, formatTime, link, pill, plural, stamp } from "./format.js";
import { RETRYABLE } from "./retry.js";

export class TableDetail {
  constructor(dialog, { labels, ondecided, onclosed }) {
    this.dialog = dialog;
    this.labels = labels;
    this.ondecided = ondecided;
    dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => {
      onclosed(this.table);
      this.table = null;
    });
  }

  async open(campaign, table) {
    this.campaign = campaign;
    this.table = table;
    fill(this.dialog, this.head(table, null), element("p", { class: "hint" }, "Reading…"));
    if (!this.dialog.open) this.dialog.showModal();
    await this.load();
  }

  async load() {
    const table = this.table;
    try {
      const found = await readTable(this.campaign, table);
      if (this.table === table) this.show(found);
    } catch (error) {
      if (this.table === table) fill(this.dialog, this.head(table, null), element("p", { class: "problem" }, error.message));
    }
  }

  show({ row, state, decisions }) {
    this.row = row;
    const error = state.error || row.error;
    fill(
      this.dialog,
      this.head(row.table, row),
      element("div", { class: "detail-body" },
        row.pending && element("p", { class: "note" }, this.pendingText(row, decisions)),
        error && element("section", { class: "fault" },
          element("h3", {}, row.state === "refused" || row.state === "excluded" ? "Why" : "Last error"),
          element("p", { class: "error" }, error),
          state.advice && element("p", { class: "advice" }, element("b", {}, "What to do "), state.advice)),
        this.links(state),
        this.facts(row, state),
        this.campaign.may_edit && this.actions(row, state),
        this.notes(state, decisions),
        this.history(state)));
  }

  head(table, row) {
    return element("header", {},
      element("div", {},
        row && pill(row.state, this.labels[row.state]),
        element("h2", { id: "detail-title" }, breakable(table))),
      element("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.dialog.close() }, "✕"));
  }

  pendingText(row, decisions) {
    const by = decisions.filter(each => each.decision === row.pending).at(-1)?.by;
    const will = { retry: "tries it again", exclude: "leaves it out", include: "takes it in again" }[row.pending];
    return `The next wave ${will ?? "acts upon a decision"}${by ? `, as ${by} decided` : ""}.`;
  }

  links(state) {
    // A worker may not know under which address people find Airflow.
    const page = /\/(dags\/.+)$/.exec(state.log_url ?? "")?.[1];
    const found = [page && link(airflow(page), "Log of its task"), state.job_url && link(state.job_url, "Spark job")];
    return found.some(Boolean) && element("p", { class: "links" }, found.filter(Boolean));
  }

  facts(row, state) {
    const verified = Object.entries(state.verified ?? {}).map(([level, version]) => `${level} at version ${version}`);
    const known = {
      Owner: row.owner,
      Files: formatCount(row.files),
      Size: `${formatBytes(row.bytes)} (${plural(row.bytes, "byte")})`,
      Rows: typeof state.rows === "number" ? formatCount(state.rows) : "",
      Priority: row.priority ? formatCount(row.priority) : "",
      Tries: row.attempts ? formatCount(row.attempts) : "",
      "Next try": row.next_attempt && `not before ${formatTime(row.next_attempt)}`,
      Verified: verified.join(", "),
      "Delta version": typeof state.version === "number" ? String(state.version) : "",
      "Can be rolled back until": formatTime(state.probation_until),
      Target: state.target_table,
      Location: state.location,
      Changed: formatTime(row.updated),
    };
    const shown = Object.entries(known).filter(([, value]) => value);
    return element("dl", { class: "detail-facts" },
      shown.map(([name, value]) => stamp("fact", { dt: name, dd: value })));
  }

  actions(row, state) {
    const excluded = row.pending ? row.pending === "exclude" : row.state === "excluded";
    // A table that was converted keeps its state when later work on it fails.
    const retryable = (RETRYABLE.includes(row.state) || (state.error && row.state !== "excluded")) && row.pending !== "retry";
    const note = element("input", { type: "text", maxlength: 1000, placeholder: "Why (optional)", "aria-label": "Why" });
    const priority = element("input", { type: "number", min: -1000, max: 1000, step: 1, value: row.priority, "aria-label": "Priority" });
    const send = decision => this.decide({ ...decision, ...(note.value.trim() ? { note: note.value.trim() } : {}) });
    const setPriority = () => { if (priority.reportValidity() && priority.value !== "") send({ priority: Number(priority.value) }); };
    priority.addEventListener("keydown", event => { if (event.key === "Enter") setPriority(); });
    const button = (text, onclick, disabled = false, kind = "") =>
      element("button", { type: "button", class: `action ${kind}`, disabled, onclick }, text);
    return element("section", { class: "actions", "aria-label": "Decide" },
      element("h3", {}, "Decide"),
      element("div", { class: "buttons" },
        button("Retry", () => send({ decision: "retry" }), !retryable, "primary"),
        excluded ? button("Include", () => send({ decision: "include" })) : button("Exclude", () => send({ decision: "exclude" })),
        element("span", { class: "joined" }, priority, button("Set priority", setPriority))),
      note,
      element("p", { class: "hint", role: "status" }, "The next wave acts upon it. Your name is recorded."));
  }

  async decide(decision) {
    const table = this.table;
    const buttons = this.dialog.querySelectorAll(".actions button");
    const status = this.dialog.querySelector(".actions [role=status]");
    buttons.forEach(button => { button.disabled = true; });
    status.textContent = "Recording…";
    try {
      await decide(this.campaign, { tables: [table], ...decision });
      const found = await readTable(this.campaign, table);
      this.ondecided(found.row);
      if (this.table !== table) return;
      this.show(found);
      const after = this.dialog.querySelector(".actions [role=status]");
      if (after) after.textContent = "Recorded. The next wave acts upon it.";
      this.dialog.querySelector(".actions button:not(:disabled)")?.focus();
    } catch (error) {
      buttons.forEach(button => { button.disabled = false; });
      status.textContent = error.message;
      status.classList.add("bad");
    }
  }

  notes(state, decisions) {
    const words = each => [
      each.decision && { retry: "try it again", exclude: "leave it out", include: "take it in again" }[each.decision],
      Number.isInteger(each.priority) && `priority ${each.priority}`,
      each.owner && `owner ${each.owner}`,
      typeof each.approved === "boolean" && (each.approved ? "approved" : "not approved"),
    ].filter(Boolean).join(", ");
    const notes = (Array.isArray(state.notes) ? state.notes : []).map(note => element("li", {}, String(note)));
    const made = [...decisions].reverse().map(each => element("li", {},
      element("b", {}, each.by || "somebody"), ` ${words(each)}`, element("small", {}, formatTime(each.at)),
      each.note && element("p", { class: "dim" }, each.note)));
    return (notes.length + made.length > 0) && element("section", {},
      notes.length > 0 && element("h3", {}, "Notes"), notes.length > 0 && element("ul", {}, notes),
      made.length > 0 && element("h3", {}, "Decisions"), made.length > 0 && element("ul", { class: "log" }, made));
  }

  history(state) {
    const entries = [...(Array.isArray(state.history) ? state.history : [])].reverse();
    return entries.length > 0 && element("section", {},
      element("h3", {}, "History"),
      element("ol", { class: "log", reversed: true }, entries.map(entry => element("li", {},
        pill(entry.state in this.labels ? entry.state : "planned", this.labels[entry.state] ?? String(entry.state)),
        element("small", {}, [formatTime(entry.at), entry.by && `by ${entry.by}`, entry.run?.replace(`${this.campaign.dag_id}.`, ""),
          entry.attempt > 1 && `try ${entry.attempt}`].filter(Boolean).join(" · ")),
        entry.error && element("p", { class: "error dim" }, String(entry.error))))));
  }
}

// Many tables at once: after one fix, all that failed by the same cause are tried again.
import { decide, listTables } from "./api.js";
import { element, fill, plural } from "./format.js";

// What one request takes.
const TABLES = 200;

export const RETRYABLE = ["failed", "needs_person", "refused", "rolled_back"];

export class RetryAll {
  constructor(dialog, { ondecided }) {
    this.dialog = dialog;
    this.ondecided = ondecided;
  }

  // Asks, then decides about all tables that a query finds. Airflow's frame allows no window.confirm.
  open(campaign, query, count) {
    const note = element("input", { type: "text", maxlength: 1000, placeholder: "Why (optional)", "aria-label": "Why" });
    const status = element("p", { class: "hint", role: "status" }, "The next wave acts upon it. Your name is recorded.");
    const retry = element("button", { type: "button", class: "action primary" }, `Retry ${plural(count, "table")}`);
    const cancel = element("button", { type: "button", class: "action", onclick: () => this.dialog.close() }, "Cancel");
    retry.addEventListener("click", async () => {
      retry.disabled = true;
      try {
        const names = await this.find(campaign, query);
        for (let start = 0; start < names.length; start += TABLES) {
          status.textContent = `Recording ${start} of ${names.length}…`;
          const decision = { tables: names.slice(start, start + TABLES), decision: "retry" };
          await decide(campaign, note.value.trim() ? { ...decision, note: note.value.trim() } : decision);
        }
        this.dialog.close();
        this.ondecided();
      } catch (error) {
        status.textContent = error.message;
        status.classList.add("bad");
        retry.disabled = false;
      }
    });
    fill(this.dialog,
      element("h2", { id: "confirm-title" }, `Have ${plural(count, "table")} tried again?`),
      note, status, element("div", { class: "buttons" }, retry, cancel));
    this.dialog.showModal();
  }

  // The names of all tables that a query finds, without those that will be tried again anyway.
  async find(campaign, query) {
    const names = [];
    for (let offset = 0, matching = 1; offset < matching; offset += TABLES) {
      const page = new URLSearchParams(query);
      page.set("offset", offset);
      page.set("limit", TABLES);
      const found = await listTables(campaign, page);
      matching = found.matching;
      names.push(...found.rows.filter(row => row.pending !== "retry").map(row => row.table));
    }
    return names;
  }
}

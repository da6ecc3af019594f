// The list of tables. The server sorts, filters and searches; rows are asked for as the list is scrolled.
/* global Tabulator */
import { listTables } from "./api.js";
import { element, formatBytes, formatCount, formatTime, pill } from "./format.js";

const ROWS = 100;
// A list that is narrower has two columns, and names in two lines.
const NARROW = 480;

const cellText = cell => element("span", {}, cell.getValue() ?? "");

export class TableList {
  constructor(target, { labels, onopen, oncount, onproblem }) {
    this.target = target;
    this.labels = labels;
    this.onopen = onopen;
    this.oncount = oncount;
    this.onproblem = onproblem;
    this.filters = {};
    target.setAttribute("aria-label", "Tables");
    this.campaign = null;
    this.nothing = element("p", { class: "hint" }, "");
    const narrow = target.clientWidth < NARROW;
    this.grid = new Tabulator(target, {
      index: "table",
      height: "min(68vh, 620px)",
      layout: "fitColumns",
      responsiveLayout: "hide",
      rowHeight: 40,
      placeholder: this.nothing,
      sortMode: "remote",
      headerSortTristate: false,
      initialSort: [{ column: "table", dir: "asc" }],
      progressiveLoad: "scroll",
      paginationSize: ROWS,
      progressiveLoadScrollMargin: 800,
      ajaxRequestFunc: (_, __, params) => this.load(params),
      dataLoader: false,
      columnDefaults: { headerTooltip: false, tooltip: false, formatter: cellText, resizable: false, vertAlign: "middle" },
      columns: [
        { title: "State", field: "state", width: narrow ? 152 : 170, responsive: 0, formatter: cell => this.statePill(cell.getData()) },
        { title: "Table", field: "table", minWidth: narrow ? 150 : 190, widthGrow: 3, responsive: 0, formatter: cell => this.opener(cell) },
        { title: "Owner", field: "owner", minWidth: 130, widthGrow: 1, responsive: 4 },
        this.number("Files", "files", 84, 6, formatCount),
        this.number("Size", "bytes", 96, 1, formatBytes),
        this.number("Priority", "priority", 100, 5, value => value ? formatCount(value) : ""),
        this.number("Tries", "attempts", 82, 7, value => value ? formatCount(value) : ""),
        { title: "Changed", field: "updated", width: 128, responsive: 2, headerSortStartingDir: "desc",
          formatter: cell => element("span", {}, formatTime(cell.getValue())) },
        { title: "Error", field: "error", minWidth: 170, widthGrow: 3, responsive: 3,
          formatter: cell => element("span", { class: "dim" }, cell.getValue()) },
      ],
    });
    this.built = new Promise(resolve => this.grid.on("tableBuilt", () => { this.prepareKeys(); resolve(); }));
    this.keepFocus();
  }

  number(title, field, width, responsive, format) {
    return { title, field, width, responsive, hozAlign: "right", headerHozAlign: "right", headerSortStartingDir: "desc",
      formatter: cell => element("span", { class: "figure" }, format(cell.getValue() ?? 0)) };
  }

  statePill(row) {
    const pending = { retry: "will be retried", exclude: "will be excluded", include: "will be included" }[row.pending];
    const made = pill(row.state, this.labels[row.state]);
    if (!pending) return made;
    made.classList.add("pending");
    made.title = pending;
    made.append(element("span", { class: "unseen" }, `, ${pending}`));
    return made;
  }

  opener(cell) {
    const name = cell.getValue();
    const made = element("button", { type: "button", class: "open", title: name, onclick: () => this.onopen(name) }, name);
    // The list is one stop of the Tab key, however many rows it has; arrows move in it.
    made.tabIndex = -1;
    return made;
  }

  async load({ page, size, sort = [] }) {
    if (!this.campaign) return { last_page: 1, data: [] };
    const asked = this.campaign, filters = this.filters;
    try {
      const found = await listTables(asked, this.query((page - 1) * size, size, sort));
      if (asked !== this.campaign || filters !== this.filters) return { last_page: 1, data: [] };
      this.nothing.textContent = found.loading && !found.total ? "The states of the tables are being read…" : "No table matches.";
      this.oncount(found);
      return { last_page: Math.max(1, Math.ceil(found.matching / size)), data: found.rows };
    } catch (error) {
      this.onproblem(error);
      return { last_page: 1, data: [] };
    }
  }

  query(offset, limit, sort) {
    const query = new URLSearchParams({ offset, limit });
    if (sort[0]) { query.set("sort", sort[0].field); query.set("order", sort[0].dir); }
    for (const [name, value] of Object.entries(this.filters)) if (value !== undefined) query.append(name, value);
    return query;
  }

  async show(campaign, filters) {
    this.campaign = campaign;
    this.filters = { ...filters };
    await this.built;
    await this.grid.setData("tables");
  }

  // After a change: at the top of the list it is loaded anew; further down, rows change where they are, so that nothing
  // moves under the reader's eyes.
  async refresh() {
    await this.built;
    const scroller = this.target.querySelector(".tabulator-tableholder");
    if (!scroller || scroller.scrollTop < 40) {
      await this.grid.replaceData("tables");
      return;
    }
    const visible = this.grid.getRows("visible").map(row => row.getPosition());
    const first = Math.max(0, Math.min(...visible) - 1 - ROWS / 2);
    const sort = this.grid.getSorters().map(({ field, dir }) => ({ field, dir }));
    const found = await listTables(this.campaign, this.query(first, 2 * ROWS, sort));
    this.oncount(found);
    await this.grid.updateData(found.rows.filter(row => this.grid.getRow(row.table)));
  }

  update(row) {
    const shown = this.grid.getRow(row.table);
    if (shown) shown.update(row).then(() => shown.reformat());
  }

  prepareKeys() {
    for (const head of this.target.querySelectorAll(".tabulator-col.tabulator-sortable")) {
      head.tabIndex = 0;
      head.addEventListener("keydown", event => {
        if (!["Enter", " "].includes(event.key)) return;
        event.preventDefault();
        head.click();
      });
    }
    const scroller = this.target.querySelector(".tabulator-tableholder");
    scroller.setAttribute("aria-label", "Tables. The arrow down goes to the first one.");
    this.target.addEventListener("keydown", event => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
      const from = event.target.closest?.(".open");
      if (!from && event.target === scroller && ["ArrowDown", "Enter"].includes(event.key)) {
        event.preventDefault();
        this.focusFirst();
      }
      if (!step || !from) return;
      event.preventDefault();
      this.focusRow(from.title, step);
    });
  }

  focusRow(name, step) {
    let row = this.grid.getRow(name);
    for (let left = Math.abs(step); row && left; left -= 1) {
      const next = step > 0 ? row.getNextRow() : row.getPrevRow();
      if (!next) break;
      row = next;
    }
    if (!row) return;
    this.grid.scrollToRow(row, "nearest", false).then(() => row.getElement().querySelector(".open")?.focus());
  }

  // The grid makes rows anew when it is laid out or loaded again, and the focus would be lost with the row that had it.
  keepFocus() {
    let name = null;
    document.addEventListener("focusin", event => {
      const opener = event.target.closest?.(".open");
      name = opener && this.target.contains(opener) ? opener.title : null;
    });
    this.grid.on("renderComplete", () => {
      if (name && document.activeElement === document.body) this.focus(name);
    });
  }

  // Back to a row, whose button may be another one since.
  focus(name) {
    const row = this.grid.getRows("visible").find(each => each.getData().table === name);
    row?.getElement().querySelector(".open")?.focus({ preventScroll: true });
  }

  focusFirst() {
    this.target.querySelector(".tabulator-row .open")?.focus();
  }
}

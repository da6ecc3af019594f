// The page of campaigns: chooses one, shows it at a glance, and keeps it up to date while it is looked at.
import { listCampaigns, readCampaign } from "./api.js";
import { BurnDownChart } from "./chart.js";
import { TableDetail } from "./detail.js";
import { airflow, element, fill, formatBytes, formatCount, formatDay, formatDuration, formatTime, link, pill, plural, stamp } from "./format.js";
import { RETRYABLE, RetryAll } from "./retry.js";
import { TableList } from "./tables.js";

const SECONDS = 10, SECONDS_WHILE_LOADING = 1.5, TYPING_PAUSE = 200;

const byId = id => document.getElementById(id);
const wanted = new URLSearchParams(location.search);
const filters = { run: wanted.get("run_id") || undefined };
let states = [], labels = {}, campaigns = [], campaign = null, shown = null, tables = null, detail = null, timer = 0, matching = 0;
const chart = new BurnDownChart(byId("chart"));
const retryAll = new RetryAll(byId("confirm"), { ondecided: () => update() });

const say = error => {
  const problem = byId("problem");
  if (error?.status === 401) {
    const next = new URLSearchParams({ next: (window.parent === window ? window : window.parent).location.href });
    fill(problem, "Your session has ended. ", link(airflow(`api/v2/auth/login?${next}`), "Log in"));
  } else {
    problem.textContent = error?.message ?? "";
  }
  problem.hidden = !error;
};

const start = async () => {
  let found;
  try {
    found = await listCampaigns(wanted.get("dag_id"));
  } catch (error) {
    return say(error);
  }
  campaigns = found.campaigns;
  states = found.states;
  labels = Object.fromEntries(states.map(state => [state.name, state.label]));
  if (!campaigns.length) {
    const missing = wanted.get("dag_id")
      ? `The DAG ${wanted.get("dag_id")} has no campaign that you may see.`
      : "There is no campaign that you may see. Campaigns appear here when their first plan is made.";
    const unset = "The page does not know where campaigns are kept: set campaigns in the section [hive_to_delta] of Airflow's configuration.";
    return say({ message: [...found.problems, found.roots ? missing : unset].join(". ") });
  }
  detail = new TableDetail(byId("detail"), {
    labels, ondecided: row => { tables.update(row); schedule(1); }, onclosed: name => tables.focus(name),
  });
  prepareControls();
  await choose(campaigns.find(each => `${each.root}/${each.name}` === wanted.get("campaign")) ?? campaigns[0]);
};

const prepareControls = () => {
  byId("chooser").hidden = campaigns.length < 2;
  fill(byId("campaigns"), campaigns.map((each, number) => element("option", { value: number }, `${each.title} (${each.dag_id})`)));
  byId("campaigns").addEventListener("change", event => choose(campaigns[event.target.value]));
  fill(byId("state"), element("option", { value: "" }, "all"), states.map(state => element("option", { value: state.name }, state.label)));
  byId("state").addEventListener("change", event => filter({ state: event.target.value || undefined }));
  byId("owner").addEventListener("change", event => filter({ owner: event.target.value === "*" ? undefined : event.target.value }));
  byId("clear").addEventListener("click", () => {
    byId("search").value = "";
    filter({ state: undefined, owner: undefined, search: undefined, run: undefined });
    byId("search").focus();
  });
  byId("retry-all").addEventListener("click", () => retryAll.open(campaign, tables.query(0, 1, []), matching));
  let typing = 0;
  byId("search").addEventListener("input", event => {
    clearTimeout(typing);
    typing = setTimeout(() => filter({ search: event.target.value.trim() || undefined }), TYPING_PAUSE);
  });
  byId("search").addEventListener("keydown", event => {
    if (event.key === "ArrowDown") { event.preventDefault(); tables.focusFirst(); }
  });
  byId("filters").addEventListener("submit", event => event.preventDefault());
  document.addEventListener("keydown", event => {
    const typed = event.target.closest?.("input, select, textarea, dialog");
    if (event.key === "/" && !typed && !event.ctrlKey && !event.metaKey) { event.preventDefault(); byId("search").focus(); }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
};

const choose = async chosen => {
  campaign = chosen;
  shown = null;
  byId("campaigns").value = campaigns.indexOf(chosen);
  await update();
};

const filter = changes => {
  Object.assign(filters, changes);
  showFilters();
  tables?.show(campaign, filters);
};

const showFilters = () => {
  byId("state").value = filters.state ?? "";
  byId("owner").value = filters.owner ?? "*";
  byId("clear").hidden = !Object.values(filters).some(value => value !== undefined);
  for (const button of byId("legend").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button.dataset.state === filters.state);
  }
};

const schedule = seconds => {
  clearTimeout(timer);
  timer = setTimeout(() => { if (!document.hidden) update(); }, seconds * 1000);
};

const update = async () => {
  clearTimeout(timer);
  const asked = campaign;
  try {
    const found = await readCampaign(asked);
    if (asked !== campaign) return;
    say(null);
    show(found);
    schedule(found.loading ? SECONDS_WHILE_LOADING : SECONDS);
  } catch (error) {
    if (asked !== campaign) return;
    say(error);
    if (error.status !== 401) schedule(SECONDS);
  }
};

const show = found => {
  const before = shown;
  shown = found;
  campaign.may_edit = found.may_edit;
  byId("header").hidden = byId("main").hidden = false;
  showHeader(found);
  showTotals(found);
  showProgress(found);
  showWaves(found.waves);
  showOwners(found.owners);
  tables ??= new TableList(byId("tables"), {
    labels, onopen: name => detail.open(campaign, name), onproblem: say, oncount: showCount,
  });
  if (!before) {
    showFilters();
    tables.show(campaign, filters);
    if (wanted.get("table")) { detail.open(campaign, wanted.get("table")); wanted.delete("table"); }
  } else if (before.revision !== found.revision) {
    tables.refresh().catch(say);
  }
};

const showHeader = found => {
  document.title = `${found.title} – Hive to Delta`;
  byId("title").textContent = found.title;
  byId("verdict").textContent = found.verdict.text;
  byId("verdict").className = `verdict ${found.verdict.tone}`;
  const facts = {
    DAG: link(airflow(`dags/${encodeURIComponent(found.dag_id)}`), found.dag_id),
    Phase: found.phase,
    Updated: formatTime(found.updated),
    Report: found.waves.some(wave => wave.ended) && link(`api/campaigns/${found.root}/${encodeURIComponent(found.name)}/report`, "of the last wave"),
    Reading: found.loading && `${formatCount(found.loading.read)} of ${plural(found.loading.total, "document")}`,
  };
  fill(byId("facts"), Object.entries(facts).filter(([, value]) => value)
    .map(([name, value]) => stamp("fact", { dt: name, dd: value })));
};

const showTotals = found => {
  fill(byId("cards"), found.cards.map(card => stamp("card",
    { span: card.name, strong: card.at ? formatDay(card.at * 1000) : card.value, small: card.detail }, card.tone)));
  const total = states.reduce((count, state) => count + (found.by_state[state.name]?.tables ?? 0), 0);
  let start = 0;
  const present = states.filter(state => found.by_state[state.name]?.tables);
  fill(byId("share"), present.map(state => {
    const width = 1000 * found.by_state[state.name].tables / total;
    start += width;
    return element("rect", { class: state.name, x: (start - width).toFixed(2), width: width.toFixed(2), height: 10 },
      element("title", {}, `${state.label}: ${formatCount(found.by_state[state.name].tables)}`));
  }));
  byId("share").setAttribute("aria-label", present.map(state => `${state.label}: ${found.by_state[state.name].tables}`).join(", "));
  const focused = document.activeElement?.dataset?.state;
  fill(byId("legend"), present.map(state => element("li", {}, element("button",
    { type: "button", "data-state": state.name, "aria-pressed": String(filters.state === state.name),
      onclick: () => filter({ state: filters.state === state.name ? undefined : state.name }) },
    pill(state.name, state.label), " ",
    element("b", {}, formatCount(found.by_state[state.name].tables))))));
  if (focused) byId("legend").querySelector(`[data-state="${focused}"]`)?.focus();
};

const showProgress = found => {
  const curve = found.burn_down;
  byId("progress").hidden = !curve?.at.length;
  if (!curve?.at.length) return;
  byId("progress-hint").textContent = curve.forecast
    ? `Tables and data that are not done yet. At the pace of the waves so far nothing is left on ${formatTime(curve.forecast * 1000)} (dashed).`
    : "Tables and data that are not done yet.";
  chart.show(curve);
};

const showWaves = waves => {
  byId("waves-section").hidden = !waves.length;
  const took = wave => wave.ended ? formatDuration((new Date(wave.ended) - new Date(wave.started)) / 1000) : "runs";
  fill(byId("waves"), [...waves].reverse().map(wave => {
    const [started, length, tables, data, failed] = [formatTime(wave.started), took(wave), formatCount(wave.tables ?? 0),
      formatBytes(wave.bytes ?? 0), wave.failed ? formatCount(wave.failed) : ""];
    const line = stamp("wave", { th: runLink(wave), "td:nth-child(2)": started, "td:nth-child(3)": length,
      "td:nth-child(4)": tables, "td:nth-child(5)": data, "td:nth-child(6)": failed },
    (wave.run_id ?? wave.run) === wanted.get("run_id") ? "current" : "");
    line.lastElementChild.classList.toggle("bad", Boolean(failed));
    return line;
  }));
};

const runLink = wave => {
  const run = wave.run_id ?? wave.run ?? "";
  return link(airflow(`dags/${encodeURIComponent(wave.dag_id ?? shown.dag_id)}/runs/${encodeURIComponent(run)}`), run);
};

const showOwners = owners => {
  const select = byId("owner");
  if (select.dataset.owners === JSON.stringify(owners)) return;
  select.dataset.owners = JSON.stringify(owners);
  fill(select, element("option", { value: "*" }, "all"), owners.map(owner => element("option", { value: owner }, owner || "(nobody)")));
  select.value = filters.owner ?? "*";
};

const showCount = found => {
  // The tab of a DAG run begins with the tables of that run; one that has changed none shows all.
  if (filters.run && !found.matching && !found.loading && !filters.search && !filters.state) return filter({ run: undefined });
  const text = found.matching === found.total ? plural(found.total, "table") : `${formatCount(found.matching)} of ${plural(found.total, "table")}`;
  matching = found.matching;
  byId("retry-all").hidden = !(shown?.may_edit && matching && RETRYABLE.includes(filters.state));
  byId("retry-all").textContent = `Retry all ${formatCount(matching)}`;
  if (found.loading && !found.total) byId("count").textContent = "";
  else byId("count").textContent = filters.run ? `${text}, last changed by the run ${filters.run}` : text;
};

start();

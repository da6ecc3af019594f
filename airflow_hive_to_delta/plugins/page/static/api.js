// The API of the page. Every answer is JSON; an error has a message for people.

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

const ask = async (path, options = {}) => {
  let answer;
  try {
    answer = await fetch(new URL(`api/${path}`, document.baseURI), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "Airflow does not answer. What is shown may be old.");
  }
  if (answer.ok) return answer.json();
  let detail = "";
  try { detail = (await answer.json()).detail; } catch { /* no JSON: a proxy between has answered */ }
  throw new ApiError(answer.status, typeof detail === "string" && detail ? detail : `The server answered ${answer.status}.`);
};

const path = campaign => `campaigns/${campaign.root}/${encodeURIComponent(campaign.name)}`;

export const listCampaigns = dagId => ask(dagId ? `campaigns?${new URLSearchParams({ dag_id: dagId })}` : "campaigns");
export const readCampaign = campaign => ask(path(campaign));
export const listTables = (campaign, query, signal) => ask(`${path(campaign)}/tables?${query}`, { signal });
export const readTable = (campaign, table) => ask(`${path(campaign)}/table?${new URLSearchParams({ table })}`);
export const decide = (campaign, decision) => ask(`${path(campaign)}/decisions`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(decision),
});

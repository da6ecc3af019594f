// Sorting and filtering are extras: without the script the page shows all of the report.
(() => {
  const table = document.querySelector(".listing"), body = table.tBodies[0], rows = [...body.rows];
  const filter = document.querySelector(".filter");
  const count = filter.querySelector("output"), input = filter.querySelector("input");
  const texts = rows.map(row => row.textContent.toLowerCase());
  filter.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, i) => { row.hidden = !texts[i].includes(wanted); shown += !row.hidden; });
    count.textContent = wanted ? `${shown} of ${rows.length} tables` : "";
  });
  const number = cell => Number(cell.firstElementChild?.value ?? (cell.textContent.replaceAll(",", "") || -1));
  const collator = new Intl.Collator("en", { numeric: true });
  table.querySelectorAll("thead th").forEach((head, column, heads) => {
    const button = document.createElement("button"), numeric = head.classList.contains("number");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first, sign = order === "ascending" ? 1 : -1;
      heads.forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const keys = new Map(rows.map(row => [row, numeric ? number(row.cells[column]) : row.cells[column].textContent]));
      const compare = numeric ? (a, b) => a - b : collator.compare;
      body.append(...[...rows].sort((a, b) => sign * compare(keys.get(a), keys.get(b))));
    });
  });
})();

// Airflow keeps its own choice of light or dark: a page inside of it follows that one, any other page the system's.
(() => {
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("theme"); } catch { /* storage is closed to this page */ }
    const media = { light: "not all", dark: "all" }[chosen] ?? "(prefers-color-scheme: dark)";
    document.querySelectorAll("link.dark").forEach(link => { link.media = media; });
    document.documentElement.style.colorScheme = ["light", "dark"].includes(chosen) ? chosen : "";
    document.dispatchEvent(new Event("themechange"));
  };
  apply();
  addEventListener("storage", event => { if (event.key === "theme") apply(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();

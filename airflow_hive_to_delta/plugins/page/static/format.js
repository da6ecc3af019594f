// Numbers, sizes and times as people read them, and elements made of texts: nothing here takes a text for markup.

const withUnit = (number, units) => {
  let power = 0;
  while (Math.abs(number) >= (power ? 999.95 : 1000) && power < units.length - 1) { number /= 1000; power += 1; }
  return power ? `${number.toFixed(1)}${units[power]}` : `${Math.round(number)}${units[0]}`;
};

export const formatCount = number => number.toLocaleString("en");
export const formatShort = number => withUnit(number, ["", " K", " M", " B", " T"]);
export const formatBytes = number => withUnit(number, [" B", " kB", " MB", " GB", " TB", " PB", " EB"]);
export const plural = (number, noun) => `${formatCount(number)} ${noun}${number === 1 ? "" : "s"}`;

export const formatTime = text => {
  const time = new Date(text);
  if (!text || Number.isNaN(time.getTime())) return "";
  return time.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
};

export const formatDay = time => new Date(time).toLocaleString("en-GB", { day: "numeric", month: "short" });

export const formatDuration = seconds => {
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.round(hours / 24)} days`;
};

const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children: texts and elements. What is null, undefined or false is left out.
export const element = (name, attributes = {}, ...children) => {
  const made = ["rect", "title"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
};

// A piece of the page as the server has made it, empty: a copy, with what each selector finds filled, and a class.
export const stamp = (name, parts, tone = "") => {
  const made = document.getElementById(`part-${name}`).content.firstElementChild.cloneNode(true);
  if (tone) made.classList.add(tone);
  for (const [selector, content] of Object.entries(parts)) {
    (selector === "" ? made : made.querySelector(selector)).replaceChildren(content ?? "");
  }
  return made;
};

export const pill = (state, label) => stamp("pill", { "": label ?? String(state) }, state);

// A qualified name, whose line may be broken after its dots and underscores.
export const breakable = name => name.split(/(?<=[._])/).flatMap(part => [part, document.createElement("wbr")]);

export const fill = (target, ...children) => target.replaceChildren(...children.flat().filter(child => child || child === 0));

// The address of a page of the Airflow that has this one.
export const airflow = path => new URL(`../${path}`, document.baseURI).href;

// Airflow shows the page in a frame that may neither leave itself nor open a window. So a link is followed by the page
// around it, which is Airflow's own.
export const link = (address, text, attributes = {}) => {
  let url;
  try { url = new URL(address, document.baseURI); } catch { return null; }
  if (!["http:", "https:"].includes(url.protocol)) return null;
  const elsewhere = url.origin !== location.origin;
  const follow = event => {
    if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = url.href;
    if (elsewhere) { outside.target = "_blank"; outside.rel = "noopener noreferrer"; }
    outside.click();
  };
  const shown = { href: url.href, rel: "noopener noreferrer", target: elsewhere ? "_blank" : null };
  return element("a", { ...shown, ...attributes, onclick: follow }, text);
};

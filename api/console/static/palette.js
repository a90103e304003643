// Ctrl-K: one box for definitions, runs, projects, pages, and the tasks and verbs of the page that is open.
// @ts-check

const opener = /** @type {HTMLElement | null} */ (document.querySelector("[data-palette]"));
const PAUSE_MS = 80;
const MOST_TASKS = 8;

/** @typedef {{kind: string, name: string, told: string, href?: string, act?: () => void}} Found */

/** @param {HTMLElement} link */
function palette(link) {
  const label = link.dataset.label || "";
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", label);
  const box = document.createElement("input");
  for (const [name, value] of Object.entries({
    type: "text", role: "combobox", "aria-label": label, placeholder: label, "aria-expanded": "true", "aria-controls": "palette-list",
    "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", maxlength: "255",
  })) box.setAttribute(name, value);
  const list = document.createElement("ul");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", label);
  const status = document.createElement("p");
  status.className = "dim";
  status.setAttribute("role", "status");
  dialog.append(box, list, status);
  document.body.append(dialog);

  /** @type {Found[]} */
  let found = [];
  let chosen = 0;
  let timer = 0;
  let asking = new AbortController();

  function open() {
    if (dialog.open) return;
    box.value = "";
    dialog.showModal();
    ask();
  }

  /** The verbs of this page: one that asks first is opened, and its button has the focus. @returns {Found[]} */
  function verbs() {
    const words = box.value.toLowerCase().trim();
    const all = [...document.querySelectorAll(".verbs .ask > summary, .verbs > form > button, .verbs a.button")];
    return all.filter((each) => (each.textContent || "").toLowerCase().includes(words)).map((each) => ({
      kind: link.dataset.kind || "", name: (each.textContent || "").trim(), told: link.dataset.verb || "",
      act: () => {
        const asks = each.parentElement;
        if (asks instanceof HTMLDetailsElement) { asks.open = true; asks.querySelector("button")?.focus(); }
        else /** @type {HTMLElement} */ (each).click();
      },
    }));
  }

  /** The tasks of the graph that the page shows: one that is chosen has the focus, and its edges are lit. @returns {Found[]} */
  function tasks() {
    const words = box.value.toLowerCase().trim();
    const named = (/** @type {Element} */ each) => each.getAttribute("data-name") || "";
    const all = words ? [...document.querySelectorAll("[data-drawing] .node")] : [];
    return all.filter((each) => named(each).toLowerCase().includes(words)).slice(0, MOST_TASKS).map((each) => ({
      kind: link.dataset.taskKind || "", name: named(each), told: link.dataset.verb || "",
      act: () => { /** @type {SVGElement} */ (each).focus({ preventScroll: true }); each.scrollIntoView({ block: "center", inline: "center" }); },
    }));
  }

  async function ask() {
    asking.abort();
    asking = new AbortController();
    try {
      const place = `/find?q=${encodeURIComponent(box.value)}`;
      const answer = await fetch(place, { headers: { Accept: "application/json", "Orcaflow-Language": document.documentElement.lang }, signal: asking.signal });
      if (answer.redirected) { location.reload(); return; }
      show([...tasks(), ...(await answer.json()).items, ...verbs()]);
    } catch (error) {
      if (!(error instanceof DOMException)) show([...tasks(), ...verbs()]);
    }
  }

  /** @param {Found[]} items */
  function show(items) {
    found = items;
    list.replaceChildren(...items.map((each, place) => {
      const row = document.createElement("li");
      row.id = `palette-${place}`;
      row.setAttribute("role", "option");
      const [kind, name, told] = ["kind", "name", "told"].map((part) => {
        const made = document.createElement("span");
        made.className = part;
        made.textContent = each[/** @type {"kind" | "name" | "told"} */ (part)];
        return made;
      });
      row.append(name, told, kind);
      row.addEventListener("click", () => go(place));
      return row;
    }));
    status.textContent = items.length ? "" : link.dataset.none || "";
    choose(0);
  }

  /** @param {number} place */
  function choose(place) {
    chosen = found.length ? (place + found.length) % found.length : 0;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === chosen)));
    if (!found.length) { box.removeAttribute("aria-activedescendant"); return; }
    box.setAttribute("aria-activedescendant", `palette-${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  }

  /** @param {number} place */
  function go(place) {
    const one = found[place];
    if (!one) return;
    dialog.close();
    if (one.act) one.act();
    else if (one.href) location.href = one.href;
  }

  box.addEventListener("input", () => { clearTimeout(timer); timer = window.setTimeout(ask, PAUSE_MS); });
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") go(chosen);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
  document.addEventListener("orcaflow:find", open);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
}

if (opener) palette(opener);

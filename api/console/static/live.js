// Follows the events of what a page shows: states change at once, the rest is loaded again.
// @ts-check

const page = /** @type {HTMLElement | null} */ (document.querySelector("[data-follow]"));
const AGAIN_MS = 700;
const AWAY_MS = 2000;

/** @param {HTMLElement} shown */
function follow(shown) {
  /** @type {Record<string, {word: string, glyph: string, colour: string}>} */
  const looks = JSON.parse(shown.dataset.looks || "{}");
  let timer = 0;
  let loading = false;
  let again = false;
  let loaded = 0;

  /** Loads the page again, at once but not too often, and puts its parts in the place of those shown. */
  function refresh() {
    if (loading) { again = true; return; }
    if (!timer) timer = window.setTimeout(load, Math.max(0, loaded + AGAIN_MS - Date.now()));
  }

  async function load() {
    timer = 0;
    loading = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return; }
      if (answer.ok) put(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      window.setTimeout(refresh, AWAY_MS);
    } finally {
      loading = false;
      loaded = Date.now();
      if (again) { again = false; refresh(); }
    }
  }

  /** @param {Document} fresh */
  function put(fresh) {
    document.title = fresh.title;
    for (const part of shown.querySelectorAll("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${/** @type {HTMLElement} */ (part).dataset.part}"]`);
      if (!other || part.innerHTML === other.innerHTML) continue;
      if (part.contains(document.activeElement) && part.querySelector("[data-drawing]")) putNodes(part, other);
      else part.innerHTML = other.innerHTML;
    }
    logs();
    document.dispatchEvent(new Event("orcaflow:changed"));
  }

  /** Keeps the focus and the place of a drawing: its boxes alone are changed. @param {Element} part @param {Element} other */
  function putNodes(part, other) {
    for (const node of other.querySelectorAll("[data-name]")) {
      const name = node.getAttribute("data-name") || "";
      const known = part.querySelector(`[data-name="${CSS.escape(name)}"]`);
      if (known) { known.setAttribute("class", node.getAttribute("class") || ""); known.innerHTML = node.innerHTML; }
    }
  }

  /** @param {{name: string, state: {code: number}}} task */
  function show(task) {
    const look = looks[task.state.code];
    if (!look) return;
    for (const node of shown.querySelectorAll(`[data-name="${CSS.escape(task.name)}"]`)) {
      const use = node.querySelector("use");
      if (!use) continue;
      use.setAttribute("href", `#g-${look.glyph}`);
      if (node.classList.contains("node")) {
        const chosen = node.classList.contains("chosen") ? " chosen" : "";
        node.setAttribute("class", `node ${look.colour}${chosen}`);
        use.setAttribute("class", `glyph ${look.colour} ${look.glyph}`);
        const title = node.querySelector("title");
        if (title) title.textContent = `${task.name}: ${look.word}`;
      } else {
        use.parentElement?.setAttribute("class", `glyph ${look.colour} ${look.glyph}`);
        const word = node.querySelector(".word");
        if (word) word.textContent = look.word;
      }
    }
  }

  const source = new EventSource(`/api/v1/events?topics=${shown.dataset.follow}`);
  let first = true;
  source.addEventListener("snapshot", () => { if (!first) refresh(); first = false; });
  source.addEventListener("task", (event) => { show(JSON.parse(event.data)); refresh(); });
  for (const kind of ["instance", "complement", "alert"]) source.addEventListener(kind, refresh);
  source.addEventListener("end", () => { source.close(); refresh(); });
  // What has happened between the making of the page and the first event.
  source.addEventListener("open", refresh);
}

/** Fills the ends of logs. */
function logs() {
  for (const place of document.querySelectorAll("[data-log]")) {
    const log = /** @type {HTMLElement} */ (place);
    fetch(log.dataset.log || "").then(async (answer) => {
      const text = answer.ok ? await answer.text() : (await answer.json()).detail;
      const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
      log.textContent = text;
      if (atEnd) log.scrollTop = log.scrollHeight;
    }).catch(() => {});
  }
}

if (page) follow(page);
logs();

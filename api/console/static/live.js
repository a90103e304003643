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

  const topics = (shown.dataset.follow || "").split(",");
  const runs = new Set(topics.map((each) => Number(each.replace("instance:", ""))));
  const all = topics.includes("overview");

  /** @param {string} kind @param {string} text */
  function heard(kind, text) {
    if (kind === "task") {
      const task = JSON.parse(text);
      // Streams are shared: other pages follow other runs.
      if (!runs.has(task.instance_id)) return;
      show(task);
    } else if (kind === "instance" && !all && !runs.has(JSON.parse(text).id)) return;
    refresh();
  }

  if (typeof SharedWorker === "undefined") listen(topics, heard);
  else share(topics, heard, shown.dataset.hub || "");
}

/** Hears events through the worker that all pages share. @param {string[]} topics @param {(kind: string, text: string) => void} heard @param {string} script */
function share(topics, heard, script) {
  const { port } = new SharedWorker(script, { name: "orcaflow" });
  port.onmessage = ({ data }) => heard(data.kind, data.text);
  port.postMessage(topics);
  window.addEventListener("pagehide", () => port.postMessage(null));
  window.addEventListener("pageshow", (event) => { if (event.persisted) port.postMessage(topics); });
}

/** Hears events by a stream of its own. @param {string[]} topics @param {(kind: string, text: string) => void} heard */
function listen(topics, heard) {
  const source = new EventSource(`/api/v1/events?topics=${topics.join(",")}`);
  // `open`: something may have happened between the making of the page and the first event.
  for (const kind of ["open", "snapshot", "task", "instance", "complement", "alert"]) {
    source.addEventListener(kind, (event) => heard(kind, /** @type {MessageEvent} */ (event).data || ""));
  }
  source.addEventListener("end", () => { source.close(); heard("end", ""); });
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

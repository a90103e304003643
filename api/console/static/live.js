// Follows the events of what a page shows: states change at once, by what the event tells; the rest is
// asked for a moment later, and only the parts of the page that look otherwise by then are sent.
// @ts-check

const page = /** @type {HTMLElement | null} */ (document.querySelector("[data-follow]"));
const SOON_MS = 250;  // Changes that come together are asked for together, beside no event.
const AGAIN_MS = 1000;
const SLOW_MS = 3000;  // Parts that the server takes long to make.
const AWAY_MS = 2000;
const PATIENCE_MS = 10_000;
const OPEN_AGAIN_MS = 10_000;

/** @typedef {{word: string, glyph: string, colour: string}} Look */

/** @param {HTMLElement} shown */
function follow(shown) {
  /** @type {{tasks: Record<string, Look>, runs: Record<string, Look>}} */
  const looks = JSON.parse(shown.dataset.looks || '{"tasks": {}, "runs": {}}');
  let timer = 0;
  let slowTimer = 0;
  let loading = false;
  let again = false;
  let loaded = 0;
  let slow = Date.now();

  /** Asks for what has changed: soon, but not too often, and not for a page that nobody sees. @param {number} soon */
  function refresh(soon = SOON_MS) {
    if (loading || document.hidden) again = true;
    else if (!timer) timer = window.setTimeout(load, Math.max(soon, loaded + AGAIN_MS - Date.now()));
  }

  document.addEventListener("visibilitychange", () => settle());

  function settle() {
    if (loading || document.hidden || !again) return;
    again = false;
    refresh();
  }

  /** Chooses the parts to ask for; the slow ones have their turn later, if it is not yet. */
  function due() {
    const all = /** @type {HTMLElement[]} */ ([...shown.querySelectorAll("[data-part]")]);
    const left = slow + SLOW_MS - Date.now();
    if (left > 0) {
      if (!slowTimer) slowTimer = window.setTimeout(() => { slowTimer = 0; refresh(); }, left);
      return all.filter((each) => each.dataset.slow === undefined);
    }
    slow = Date.now();
    return all;
  }

  async function load() {
    timer = 0;
    loading = true;
    try {
      const parts = due();
      const known = parts.map((each) => `${each.dataset.part}=${each.dataset.digest}`).join();
      // The cache would have the pages of one address wait for each other.
      const asked = { headers: { "Orcaflow-Parts": known, "Orcaflow-Language": document.documentElement.lang }, cache: /** @type {const} */ ("no-store"), signal: AbortSignal.timeout(PATIENCE_MS) };
      const answer = await fetch(location.href, asked);
      const isOut = answer.redirected && new URL(answer.url).pathname === "/login";
      // What is gone or forbidden by now says so on a page of its own.
      if (isOut || answer.status === 403 || answer.status === 404) location.reload();
      else if (answer.ok) put(parts, await answer.json());
      else throw new Error(`${answer.status}`);
    } catch {
      window.setTimeout(() => refresh(), AWAY_MS);
    } finally {
      loading = false;
      loaded = Date.now();
      settle();
    }
  }

  /** @param {HTMLElement[]} parts @param {{title: string, parts: Record<string, {html: string, digest: string}>}} fresh */
  function put(parts, fresh) {
    document.title = fresh.title;
    for (const part of parts) {
      const made = fresh.parts[part.dataset.part || ""];
      if (!made) continue;
      part.dataset.digest = made.digest;
      const other = document.createElement("template");
      other.innerHTML = made.html;
      if (!redrawn(part, other.content)) replace(part, other.content);
    }
    document.dispatchEvent(new Event("orcaflow:changed"));
  }

  /** @param {{name: string, state: {code: number}}} task */
  function showTask(task) {
    const look = looks.tasks[task.state.code];
    if (!look) return;
    for (const node of shown.querySelectorAll(`[data-name="${CSS.escape(task.name)}"]`)) {
      if (!node.classList.contains("node")) { paint(node, look); continue; }
      const chosen = node.classList.contains("chosen") ? " chosen" : "";
      node.setAttribute("class", `node ${look.colour}${chosen}`);
      node.querySelector(".mark")?.setAttribute("class", `mark ${look.glyph}`);
      const title = node.querySelector("title");
      if (title) title.textContent = `${task.name}: ${look.word}`;
    }
  }

  /** @param {{id: number, state: {code: number}, wanted_state: {code: number} | null, end: string | null}} run */
  function showRun(run) {
    const wanted = run.wanted_state && !run.end ? looks.runs[`wanted-${run.wanted_state.code}`] : undefined;
    const look = wanted || looks.runs[run.state.code];
    if (look) for (const place of shown.querySelectorAll(`[data-instance="${run.id}"]`)) paint(place, look);
  }

  const topics = (shown.dataset.follow || "").split(",");
  const runs = new Set(topics.map((each) => Number(each.replace("instance:", ""))));
  const all = topics.includes("overview");

  /** @param {string} kind @param {string} text */
  function heard(kind, text) {
    // Streams are shared: other pages follow other runs.
    if (kind === "task") {
      const task = JSON.parse(text);
      if (!runs.has(task.instance_id)) return;
      showTask(task);
    } else if (kind === "instance") {
      const run = JSON.parse(text);
      if (!all && !runs.has(run.id)) return;
      showRun(run);
    }
    // What happened between the making of the page and its first event is told by no other.
    refresh(kind === "open" || kind === "snapshot" ? 0 : SOON_MS);
  }

  // A worker is a process, whose start would keep the first picture waiting.
  requestAnimationFrame(() => window.setTimeout(() => {
    if (typeof SharedWorker === "undefined") listen(topics, heard);
    else share(topics, heard, shown.dataset.hub || "");
  }));
}

/** Gives the one glyph with its word in a place another look. @param {Element} place @param {Look} look */
function paint(place, look) {
  const use = place.querySelector("use");
  const word = place.querySelector(".word");
  if (!use || !word) return;
  use.setAttribute("href", `#g-${look.glyph}`);
  use.parentElement?.setAttribute("class", `glyph ${look.colour} ${look.glyph}`);
  place.querySelector(".pill")?.setAttribute("class", `pill ${look.colour}`);
  word.textContent = look.word;
}

/** Changes the boxes and edges of a drawing alone, so that zoom, place and focus stay; false if it is another one. @param {HTMLElement} part @param {DocumentFragment} other */
function redrawn(part, other) {
  const all = (/** @type {ParentNode} */ each) => [...each.querySelectorAll("[data-drawing] .node, [data-drawing] [data-ends]")];
  const size = (/** @type {ParentNode} */ each) => each.querySelector("[data-drawing] svg")?.getAttribute("viewBox");
  const [known, fresh] = [all(part), all(other)];
  const name = (/** @type {Element} */ each) => each.getAttribute("data-name");
  if (!known.length || known.length !== fresh.length || size(part) !== size(other) || known.some((each, place) => name(each) !== name(fresh[place]))) return false;
  known.forEach((each, place) => {
    for (const { name, value } of fresh[place].attributes) if (each.getAttribute(name) !== value) each.setAttribute(name, value);
    if (each.innerHTML !== fresh[place].innerHTML) each.innerHTML = fresh[place].innerHTML;
  });
  return true;
}

/** Puts new content into a part, and keeps the focus, what is scrolled, what is opened, and the text of logs. @param {HTMLElement} part @param {DocumentFragment} other */
function replace(part, other) {
  const kept = ".grid, .drawing, .code, details";
  const before = [...part.querySelectorAll(kept)].map((each) => ({ each, left: each.scrollLeft, top: each.scrollTop }));
  const able = "a, button, input, select, textarea, summary, [tabindex]";
  const active = document.activeElement;
  const focus = active && part.contains(active) ? [...part.querySelectorAll(able)].indexOf(active) : -1;
  const place = active?.getAttribute("href");
  for (const log of other.querySelectorAll("[data-log]")) {
    const known = part.querySelector(`[data-log="${CSS.escape(log.getAttribute("data-log") || "")}"]`);
    if (known) log.textContent = known.textContent;
  }
  part.replaceChildren(other);
  [...part.querySelectorAll(kept)].forEach((each, index) => {
    const former = before[index];
    if (!former || former.each.className !== each.className) return;
    if (former.each.hasAttribute("open")) each.setAttribute("open", "");
    each.scrollTo(former.left, former.top);
  });
  if (focus < 0) return;
  const found = place && part.querySelector(`[href="${CSS.escape(place)}"]`) || part.querySelectorAll(able)[focus];
  /** @type {HTMLElement | undefined} */ (found)?.focus({ preventScroll: true });
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
  const again = () => {
    source.close();
    heard("end", "");
    window.setTimeout(() => listen(topics, heard), OPEN_AGAIN_MS);
  };
  source.addEventListener("end", again);
  // Refused, and not merely interrupted: a page learns the reason when it asks.
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) again(); });
}

if (page) follow(page);

// Logs: the last lines beside the facts of a task, and a page of the whole, which holds some pieces of it
// around the place that is read. Both follow what the task writes until it has ended.
// @ts-check

const LINES = 200;
const PIECE = 65_536;
const MOST_PIECES = 8;
const NEAR = 400;
const AGAIN_MS = 3000;
// Colours too: on these pages they mean states.
const STEERING = /\x1b(?:\[[0-?]*[ -\/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -\/]*[0-Z\\^-~])?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;

/** @param {string} text */
const plain = (text) => text.replace(/\r\n?/g, "\n").replace(STEERING, "");

/** Reads bytes of a log. @param {string} id @param {string} query */
async function bytes(id, query) {
  const answer = await fetch(`/api/v1/tasks/${id}/log?${query}`);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return {
    body: new Uint8Array(await answer.arrayBuffer()),
    start: Number(answer.headers.get("Log-Start")),
    size: Number(answer.headers.get("Log-Size")),
    ended: answer.headers.get("Log-Ended") === "true",
  };
}

/**
 * Hears what a task writes, while somebody sees the page; returns what stops it. A connection is kept, of
 * which a browser has few, so only what is looked at is followed.
 * @param {string} id @param {number} from @param {(text: string, at: number) => void} heard @param {() => void} ended
 */
function listening(id, from, heard, ended) {
  /** @type {EventSource | undefined} */
  let source;
  let at = from;
  let timer = 0;
  const close = () => {
    source?.close();
    source = undefined;
    window.clearTimeout(timer);
  };
  const later = () => {
    close();
    timer = window.setTimeout(open, AGAIN_MS);
  };
  function open() {
    if (document.hidden || source) return;
    source = new EventSource(`/api/v1/tasks/${id}/log/stream?from=${at}`);
    /** @param {Event} event */
    const told = (event) => {
      const { data, lastEventId } = /** @type {MessageEvent} */ (event);
      at = Number(lastEventId);
      return JSON.parse(data);
    };
    source.addEventListener("log", (event) => { const { text } = told(event); heard(text, at); });
    source.addEventListener("gap", (event) => { told(event); heard("…\n", at); });
    source.addEventListener("end", (event) => {
      const { reason } = told(event);
      if (reason === "ended") { close(); ended(); }
      // What is gone or forbidden by now says so on a page of its own.
      else if (reason === "unauthenticated" || reason === "not-found") location.reload();
      else later();
    });
    // The browser comes back by itself from a break, and never from an answer that is an error.
    source.addEventListener("error", () => { if (source?.readyState === EventSource.CLOSED) later(); });
  }
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    close();
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Gathers what comes, to show it once a picture. @param {(text: string, at: number) => void} show */
function gathered(show) {
  let text = "";
  let end = 0;
  return (/** @type {string} */ more, /** @type {number} */ at) => {
    if (!text) requestAnimationFrame(() => { const all = text; text = ""; show(all, end); });
    text += more;
    end = at;
  };
}

/** @type {{id: string, stop: () => void} | undefined} */
let beside;

/** Shows the last lines of the log that the page names, and follows it. */
function showEnd() {
  const id = /** @type {HTMLElement | null} */ (document.querySelector("[data-log]"))?.dataset.log;
  if (beside?.id === id) return;  // Its text was kept.
  beside?.stop();
  beside = undefined;
  if (id) beside = { id, stop: following(id) };
}

/** @param {string} id */
function following(id) {
  let stop = () => {};
  let gone = false;
  /** @param {(known: string) => string} change */
  const show = (change) => {
    const place = document.querySelector(`[data-log="${id}"]`);
    if (!place || gone) return;
    const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
    place.textContent = change(place.textContent || "").split("\n").slice(-LINES - 1).join("\n");
    if (atEnd) place.scrollTop = place.scrollHeight;
  };
  const begin = async () => {
    try {
      const { body, start, ended } = await bytes(id, "lines=30");
      show(() => plain(new TextDecoder().decode(body)));
      if (ended || gone) return;
      stop = listening(id, start + body.length, gathered((text) => show((known) => known + plain(text))), () => {});
    } catch (error) {
      // A task that has just begun has no log yet.
      show(() => (error instanceof Error ? error.message : ""));
      if (!gone) { const timer = window.setTimeout(begin, AGAIN_MS); stop = () => window.clearTimeout(timer); }
    }
  };
  begin();
  return () => { gone = true; stop(); };
}

/** The page of a whole log. @param {HTMLElement} pane */
function whole(pane) {
  const id = pane.dataset.whole || "";
  const text = /** @type {HTMLElement} */ (pane.querySelector("pre"));
  const status = /** @type {HTMLElement} */ (document.querySelector("[data-place]"));
  const button = /** @type {HTMLButtonElement} */ (document.querySelector("[data-follow-log]"));
  /** @type {{start: number, end: number, node: HTMLElement}[]} */
  let pieces = [];
  let size = Number(pane.dataset.size);
  let ended = pane.dataset.ended === "true";
  let busy = false;
  /** @type {(() => void) | undefined} */
  let stop;

  /** @param {number} start @param {number} end @param {string} shown @param {boolean} first */
  function put(start, end, shown, first = false) {
    const node = document.createElement("span");
    node.textContent = shown;
    if (first) { text.prepend(node); pieces.unshift({ start, end, node }); }
    else { text.append(node); pieces.push({ start, end, node }); }
    while (pieces.length > MOST_PIECES) (first ? pieces.pop() : pieces.shift())?.node.remove();
    tell();
  }

  function tell() {
    const number = (/** @type {number} */ each) => each.toLocaleString(document.documentElement.lang);
    status.textContent = `${number(pieces[0]?.start || 0)} – ${number(pieces.at(-1)?.end || 0)} / ${number(size)}`;
    button.hidden = ended;
    button.setAttribute("aria-pressed", String(stop !== undefined));
  }

  /** Reads a piece, cut between two lines where there are any so near. @param {string} query @param {{head?: boolean, tail?: boolean}} cut */
  async function lines(query, cut) {
    const found = await bytes(id, query);
    ({ size, ended } = found);
    const { body, start } = found;
    const isLast = start + body.length >= size;
    const tail = cut.tail && !isLast ? body.lastIndexOf(10) + 1 || body.length : body.length;
    const head = cut.head ? body.indexOf(10) + 1 : 0;
    const from = head < tail ? head : 0;
    return { start: start + from, end: start + tail, text: plain(new TextDecoder().decode(body.subarray(from, tail))) };
  }

  /** @param {() => Promise<void>} read */
  async function once(read) {
    if (busy) return;
    busy = true;
    try {
      await read();
    } catch (error) {
      status.textContent = error instanceof Error ? error.message : "";
    } finally {
      busy = false;
    }
  }

  const above = () => once(async () => {
    const end = pieces[0].start;
    const from = Math.max(0, end - PIECE);
    const found = await lines(`from=${from}&max=${end - from}`, { head: from > 0 });
    const before = pane.scrollHeight;
    put(found.start, end, found.text, true);
    pane.scrollTop += pane.scrollHeight - before;
  });

  const below = () => once(async () => {
    const found = await lines(`from=${pieces.at(-1)?.end || 0}&max=${PIECE}`, { tail: true });
    if (found.text) put(found.start, found.end, found.text);
  });

  function clear() {
    unfollow();
    pieces = [];
    text.replaceChildren();
  }

  const begin = () => once(async () => {
    const found = await lines(`from=0&max=${PIECE}`, { tail: true });
    clear();
    put(found.start, found.end, found.text);
    pane.scrollTop = 0;
  });

  const end = () => once(async () => {
    const found = await lines(`lines=${LINES}`, {});
    clear();
    put(found.start, found.end, found.text);
    pane.scrollTop = pane.scrollHeight;
    follow();
  });

  function follow() {
    const last = pieces.at(-1);
    if (stop || ended || !last) return;
    stop = listening(id, last.end, gathered((more, at) => {
      const now = pieces.at(-1);
      size = Math.max(size, at);
      if (!stop) return;
      if (now && (now.node.textContent || "").length + more.length < PIECE) {
        now.node.append(plain(more));
        now.end = at;
      } else put(now?.end || 0, at, plain(more));
      tell();
      pane.scrollTop = pane.scrollHeight;
    }), () => {
      // Behind the picture of the last lines, which is thrown away once nobody follows.
      requestAnimationFrame(() => { ended = true; stop = undefined; tell(); });
    });
    tell();
  }

  function unfollow() {
    stop?.();
    stop = undefined;
    tell();
  }

  pane.addEventListener("scroll", () => {
    const left = pane.scrollHeight - pane.scrollTop - pane.clientHeight;
    // Whoever scrolls up reads: what comes would push it away.
    if (stop && left > NEAR / 4) unfollow();
    if (!stop && pane.scrollTop < NEAR && pieces[0]?.start > 0) above();
    else if (!stop && left < NEAR && (pieces.at(-1)?.end || 0) < size) below();
  });
  button.addEventListener("click", () => (stop ? unfollow() : end()));
  document.querySelector("[data-begin]")?.addEventListener("click", (event) => { event.preventDefault(); begin(); });
  document.querySelector("[data-end]")?.addEventListener("click", (event) => { event.preventDefault(); end(); });

  for (const each of document.querySelectorAll(".pieces")) each.remove();  // Scrolling does it.
  const node = /** @type {HTMLElement} */ (text.firstElementChild);
  pieces.push({ start: Number(pane.dataset.start), end: Number(pane.dataset.end), node });
  tell();
  if (pieces[0].end >= size) {
    pane.scrollTop = pane.scrollHeight;
    follow();
  }
}

const pane = /** @type {HTMLElement | null} */ (document.querySelector("[data-whole]"));
if (pane) whole(pane);
showEnd();
document.addEventListener("orcaflow:changed", showEnd);

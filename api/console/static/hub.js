// The one stream of events of all pages in a browser, which opens only six connections to a server.
// A shared worker: each page says what it follows, and hears every event; it knows which are its own.
// @ts-check

const SETTLE_MS = 50;
const AGAIN_MS = 10_000;
const MOST_RUNS = 50;

/** @type {Map<MessagePort, string[]>} */
const followed = new Map();
/** Pages that came last: what happened since they were made has been told before they heard it. @type {Set<MessagePort>} */
const late = new Set();
/** @type {EventSource[]} */
let sources = [];
let open = "";
let timer = 0;

/** @param {string} kind @param {string} text */
function tell(kind, text) {
  for (const port of followed.keys()) port.postMessage({ kind, text });
}

/** Opens streams of all that is followed, unless they are open. @param {number} wait */
function settle(wait) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const topics = [...new Set([...followed.values()].flat())].sort();
    const heardAlready = topics.join() === open ? [...late] : [];
    late.clear();
    for (const port of heardAlready) port.postMessage({ kind: "open", text: "" });
    if (topics.join() === open) return;
    close();
    open = topics.join();
    const runs = topics.filter((each) => each !== "overview").reverse();
    const lists = [];
    while (runs.length) lists.push(runs.splice(0, MOST_RUNS));
    if (topics.includes("overview")) lists.length ? lists[0].push("overview") : lists.push(["overview"]);
    sources = lists.map(listen);
  }, wait);
}

function close() {
  for (const each of sources) each.close();
  sources = [];
  open = "";
}

/** @param {string[]} topics */
function listen(topics) {
  const source = new EventSource(`/api/v1/events?topics=${topics.join(",")}`);
  for (const kind of ["open", "snapshot", "task", "instance", "complement", "alert"]) {
    source.addEventListener(kind, (event) => tell(kind, /** @type {MessageEvent} */ (event).data || ""));
  }
  source.addEventListener("end", (event) => {
    close();
    tell("end", /** @type {MessageEvent} */ (event).data || "");
    settle(AGAIN_MS);
  });
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) return;
    // Refused, and not merely interrupted: it does not try again by itself. A page learns the reason when it asks.
    close();
    tell("end", "");
    settle(AGAIN_MS);
  });
  return source;
}

globalThis.addEventListener("connect", (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports;
  port.onmessage = (message) => {
    const topics = message.data;
    if (topics) { followed.set(port, topics); late.add(port); }
    else followed.delete(port);
    settle(SETTLE_MS);
  };
});

// Drawings of graphs: zoom, arrow keys that walk along edges, and light on what is before and behind a task.
// @ts-check

const STEP = 1.25;
const LEAST = 0.1;
const MOST = 3;

/** @typedef {{tail: number, head: number, d: string}} Edge Its ends are places among the nodes. */

/** The edges on all ways from a node in one direction. @param {Edge[]} edges @param {number} start @param {"tail" | "head"} near @param {"tail" | "head"} far */
function reached(edges, start, near, far) {
  /** @type {Map<number, Edge[]>} */
  const at = new Map();
  for (const each of edges) at.set(each[near], [...(at.get(each[near]) || []), each]);
  const seen = new Set([start]);
  // A set gives what is added while it is walked as well.
  for (const place of seen) for (const each of at.get(place) || []) seen.add(each[far]);
  return [...seen].flatMap((place) => at.get(place) || []);
}

/** @param {HTMLElement} drawing */
function prepare(drawing) {
  const svg = drawing.querySelector("svg");
  if (!svg || drawing.dataset.prepared) return;
  drawing.dataset.prepared = "yes";
  const [, , width, height] = (svg.getAttribute("viewBox") || "0 0 1 1").split(" ").map(Number);
  let scale = Number(svg.getAttribute("width")) / width;

  /** @param {number} wanted */
  function zoom(wanted) {
    scale = Math.min(MOST, Math.max(LEAST, wanted));
    svg?.setAttribute("width", String(Math.round(width * scale)));
    svg?.setAttribute("height", String(Math.round(height * scale)));
  }
  const fitting = () => Math.min(1, (drawing.clientWidth - 2) / width);
  // A large one is shown as it was sent: to ask for the room, or to zoom, would lay it out once more.
  if (scale === 1) zoom(Math.max(fitting(), 0.8));

  const nodes = () => [...drawing.querySelectorAll(".node")];
  /** The edges of all paths. @returns {Edge[]} */
  const edges = () => [...drawing.querySelectorAll("[data-ends]")].flatMap((each) => {
    const curves = (each.getAttribute("d") || "").split("M").slice(1);
    return (each.getAttribute("data-ends") || "").split(" ").filter(Boolean).map((ends, place) => {
      const [tail, head] = ends.split("-").map(Number);
      return { tail, head, d: `M${curves[place]}` };
    });
  });

  /** @param {Element} from @param {string} key */
  function beside(from, key) {
    const all = nodes();
    const own = all.indexOf(from);
    if (key === "ArrowRight") return all[edges().find((each) => each.tail === own)?.head ?? -1] || null;
    if (key === "ArrowLeft") return all[edges().find((each) => each.head === own)?.tail ?? -1] || null;
    const place = (/** @type {Element} */ each) => {
      const rect = /** @type {Element} */ (each.querySelector("rect"));
      return [Number(rect.getAttribute("x")), Number(rect.getAttribute("y"))];
    };
    const [x, y] = place(from);
    const sign = key === "ArrowDown" ? 1 : -1;
    return all.filter((each) => place(each)[0] === x && sign * (place(each)[1] - y) > 0)
      .sort((one, other) => sign * (place(one)[1] - place(other)[1]))[0] || null;
  }

  drawing.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+") zoom(scale * STEP);
    else if (event.key === "-") zoom(scale / STEP);
    else if (event.key === "0") zoom(fitting());
    else if (event.key === "/") document.dispatchEvent(new Event("orcaflow:find"));
    else if (event.key.startsWith("Arrow")) {
      const active = document.activeElement?.closest(".node");
      const next = active ? beside(active, event.key) : nodes()[0];
      if (next) { /** @type {SVGElement} */ (next).focus(); next.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    } else return;
    event.preventDefault();
  });
  drawing.addEventListener("focusin", (event) => {
    const node = /** @type {Element} */ (event.target).closest(".node");
    const own = node ? nodes().indexOf(node) : -1;
    const all = edges();
    const lit = [...reached(all, own, "tail", "head"), ...reached(all, own, "head", "tail")];
    drawing.querySelector(".edge.lit")?.setAttribute("d", lit.map((each) => each.d).join(""));
  });
  for (const each of nodes()) if (!each.hasAttribute("href")) each.setAttribute("tabindex", "0");
}

function all() {
  for (const each of document.querySelectorAll("[data-drawing]")) prepare(/** @type {HTMLElement} */ (each));
}
all();
document.addEventListener("orcaflow:changed", all);

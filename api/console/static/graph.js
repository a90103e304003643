// Drawings of graphs: zoom, and arrow keys that walk along edges.
// @ts-check

const STEP = 1.25;
const LEAST = 0.1;
const MOST = 3;

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
  /** @param {string} name */
  const node = (name) => drawing.querySelector(`.node[data-name="${CSS.escape(name)}"]`);

  /** @param {Element} from @param {string} key */
  function beside(from, key) {
    const name = from.getAttribute("data-name") || "";
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const [own, others] = key === "ArrowRight" ? ["tail", "head"] : ["head", "tail"];
      const edge = drawing.querySelector(`.edge[data-${own}="${CSS.escape(name)}"]`);
      return edge ? node(edge.getAttribute(`data-${others}`) || "") : null;
    }
    const place = (/** @type {Element} */ each) => {
      const rect = /** @type {Element} */ (each.querySelector("rect"));
      return [Number(rect.getAttribute("x")), Number(rect.getAttribute("y"))];
    };
    const [x, y] = place(from);
    const sign = key === "ArrowDown" ? 1 : -1;
    return nodes().filter((each) => place(each)[0] === x && sign * (place(each)[1] - y) > 0)
      .sort((one, other) => sign * (place(one)[1] - place(other)[1]))[0] || null;
  }

  drawing.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+") zoom(scale * STEP);
    else if (event.key === "-") zoom(scale / STEP);
    else if (event.key === "0") zoom(fitting());
    else if (event.key.startsWith("Arrow")) {
      const active = document.activeElement?.closest(".node");
      const next = active ? beside(active, event.key) : nodes()[0];
      if (next) { /** @type {SVGElement} */ (next).focus(); next.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    } else return;
    event.preventDefault();
  });
  drawing.addEventListener("focusin", (event) => {
    const name = /** @type {Element} */ (event.target).closest(".node")?.getAttribute("data-name");
    for (const edge of drawing.querySelectorAll(".edge")) {
      edge.classList.toggle("lit", name != null && [edge.getAttribute("data-tail"), edge.getAttribute("data-head")].includes(name));
    }
  });
  for (const each of nodes()) if (!each.hasAttribute("href")) each.setAttribute("tabindex", "0");
}

function all() {
  for (const each of document.querySelectorAll("[data-drawing]")) prepare(/** @type {HTMLElement} */ (each));
}
all();
document.addEventListener("orcaflow:changed", all);

// A grid by keys and pointer: arrow keys move from cell to cell, Enter or a click opens the run at the task.
// @ts-check

const CELL = 18;

// Of the one grid of the page, also when it is put anew.
let row = 0;
let column = -1;

/** @param {HTMLElement} grid */
function prepare(grid) {
  if (grid.dataset.ready) return;
  grid.dataset.ready = "yes";
  if (column < 0) grid.scrollLeft = grid.scrollWidth;  // The newest runs are on the right.
  column = Math.min(column < 0 ? Infinity : column, runs().length - 1);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  cursor.setAttribute("class", "cursor");
  for (const [name, value] of [["width", CELL - 1], ["height", CELL - 1], ["y", 0.5]]) cursor.setAttribute(String(name), String(value));

  function runs() { return [...grid.querySelectorAll("[data-run]")].map((each) => each.getAttribute("data-run")); }
  function rows() { return [...grid.querySelectorAll("[data-task]")]; }

  function show() {
    const line = rows()[row];
    const picture = line?.querySelector("svg");
    if (!line || !picture) return;
    cursor.setAttribute("x", String(column * CELL + 0.5));
    picture.append(cursor);
    line.scrollIntoView({ block: "nearest" });
  }

  function open() {
    const line = rows()[row];
    const run = runs()[column];
    if (line && run) location.href = `/runs/${run}?task=${encodeURIComponent(line.getAttribute("data-task") || "")}`;
  }

  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== grid) return;
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (move) {
      row = Math.min(Math.max(row + move[0], 0), rows().length - 1);
      column = Math.min(Math.max(column + move[1], 0), runs().length - 1);
      show();
    } else if (event.key === "Enter") open();
    else return;
    event.preventDefault();
  });
  grid.addEventListener("focus", show);
  grid.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    const picture = target.closest("svg");
    const line = target.closest("[data-task]");
    if (!picture || !line) return;
    row = rows().indexOf(line);
    column = Math.floor((event.clientX - picture.getBoundingClientRect().left) / CELL);
    open();
  });
}

function all() {
  for (const each of document.querySelectorAll("[data-grid]")) prepare(/** @type {HTMLElement} */ (each));
}
all();
document.addEventListener("orcaflow:changed", all);

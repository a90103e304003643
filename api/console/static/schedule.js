// Looks ahead while a schedule is typed: a moment after the last key the server works out its fires again.
// @ts-check

const draft = /** @type {HTMLFormElement | null} */ (document.querySelector("form[data-look]"));
const PAUSE_MS = 500;

/** @param {HTMLFormElement} form */
function lookAhead(form) {
  const part = /** @type {HTMLElement | null} */ (form.querySelector('[data-part="look"]'));
  let timer = 0;
  let asking = new AbortController();

  async function look() {
    if (!part) return;
    asking.abort();
    asking = new AbortController();
    const body = new URLSearchParams();
    for (const [name, value] of new FormData(form)) body.append(name, String(value));
    const headers = { "Orcaflow-Parts": `look=${part.dataset.digest}`, "Orcaflow-Language": document.documentElement.lang };
    try {
      const answer = await fetch(form.dataset.look || "", { method: "POST", body, headers, signal: asking.signal });
      // Whoever is logged out by now is told so by the order itself.
      if (!(answer.headers.get("content-type") || "").startsWith("application/json")) return;
      const made = (await answer.json()).parts.look;
      if (!made) return;
      part.dataset.digest = made.digest;
      const other = document.createElement("template");
      other.innerHTML = made.html;
      part.replaceChildren(other.content);
    } catch {
      // The next key asks again, and so does the button.
    }
  }

  form.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(look, PAUSE_MS);
  });
}

if (draft) lookAhead(draft);

// The editor of a draft: line numbers, and the form sent a moment after somebody stops typing.
// @ts-check

const PAUSE = 900;

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("form[data-edit]"));
if (form) prepare(form);
for (const each of document.querySelectorAll(".editor")) number(/** @type {HTMLElement} */ (each));

/** @param {HTMLElement} editor */
function number(editor) {
  const lines = editor.querySelector(".lines");
  const area = editor.querySelector("textarea");
  if (!lines || !area) return;
  let known = 0;
  const renew = () => {
    const count = area.value.split("\n").length;
    if (count !== known) {
      known = count;
      lines.textContent = Array.from({ length: count }, (_, at) => at + 1).join("\n");
    }
    lines.scrollTop = area.scrollTop;
  };
  area.addEventListener("input", renew);
  area.addEventListener("scroll", renew);
  renew();
}

/** @param {HTMLFormElement} edit */
function prepare(edit) {
  const status = /** @type {HTMLElement} */ (edit.querySelector("[data-status]"));
  let timer = 0;
  let changes = 0;
  let sending = false;

  /** @param {string} word */
  const tell = (word) => {
    status.textContent = edit.dataset[word] || "";
  };

  edit.addEventListener("input", (event) => {
    // The type of a task that is not there yet is no change of the draft.
    if (event.target instanceof HTMLElement && "still" in event.target.dataset) return;
    changes += 1;
    tell("unsaved");
    window.clearTimeout(timer);
    timer = window.setTimeout(send, PAUSE);
  });
  // A task of another type has other fields, which the page of the answer has.
  edit.querySelector("[data-form]")?.addEventListener("change", () => {
    const save = edit.querySelector('button[value="save"]');
    edit.requestSubmit(/** @type {HTMLElement | null} */ (save));
  });
  // A button sends the form itself: nothing else may be under way with the tag of before.
  edit.addEventListener("submit", (event) => {
    window.clearTimeout(timer);
    if (sending) {
      event.preventDefault();
      const button = /** @type {SubmitEvent} */ (event).submitter;
      window.setTimeout(() => edit.requestSubmit(button), 100);
    } else changes = 0;
  });
  window.addEventListener("beforeunload", (event) => {
    if (changes > 0) event.preventDefault();
  });

  async function send() {
    if (sending) {
      timer = window.setTimeout(send, PAUSE);
      return;
    }
    const seen = changes;
    sending = true;
    tell("saving");
    try {
      const body = new URLSearchParams();
      for (const [name, value] of new FormData(edit)) body.append(name, String(value));
      const answer = await fetch(edit.action, { method: "POST", body });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const saved = answer.ok && page.querySelector("form[data-edit]") !== null;
      if (saved) {
        take(page);
        changes -= seen;
      }
      told(page, saved);
      tell(saved && changes === 0 ? "saved" : "unsaved");
    } catch {
      tell("unsaved");
    } finally {
      sending = false;
    }
  }

  /** @param {Document} page */
  function take(page) {
    for (const name of ["tag", "task"]) {
      const own = edit.querySelector(`input[type=hidden][name=${name}]`);
      const other = page.querySelector(`form[data-edit] input[type=hidden][name=${name}]`);
      if (own && other) own.setAttribute("value", other.getAttribute("value") || "");
    }
    for (const own of document.querySelectorAll("[data-fresh]")) {
      const other = page.getElementById(own.id);
      if (!other || own.innerHTML === other.innerHTML) continue;
      own.replaceChildren(...other.childNodes);
    }
    document.dispatchEvent(new Event("orcaflow:changed"));
  }

  /** @param {Document} page @param {boolean} saved */
  function told(page, saved) {
    edit.querySelector("[data-told]")?.remove();
    const other = page.querySelector("[data-told]") || page.querySelector("main .reason");
    if (saved || !other) return;
    const line = document.createElement("p");
    line.className = "reason";
    line.dataset.told = "";
    line.setAttribute("role", "alert");
    line.textContent = other.textContent;
    edit.querySelector(".tabs")?.before(line);
  }
}

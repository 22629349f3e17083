// What every page shares: theme switch, dialogs, copy buttons, fields that depend on another.

const root = document.documentElement;

function switchTheme() {
  const theme = root.dataset.bsTheme === "dark" ? "light" : "dark";
  root.dataset.bsTheme = theme;
  document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  document.dispatchEvent(new CustomEvent("tg:theme", { detail: theme }));
}

async function copy(button) {
  const text = button.closest(".tg-code").querySelector("code").textContent;
  const icon = button.querySelector(".ti");
  try {
    await navigator.clipboard.writeText(text);
    icon.classList.replace("ti-copy", "ti-check");
  } catch {
    getSelection().selectAllChildren(button.closest(".tg-code").querySelector("code"));
  }
  setTimeout(() => icon.classList.replace("ti-check", "ti-copy"), 1500);
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-theme-switch], [data-copy], [data-print], [data-dialog-close]");
  if (!target) return;
  if (target.matches("[data-theme-switch]")) switchTheme();
  else if (target.matches("[data-copy]")) copy(target);
  else if (target.matches("[data-print]")) window.print();
  else target.closest("dialog")?.close();
});

// What is disabled stays in reach of the keyboard, so that its reason can be read; it does nothing.
document.addEventListener("click", (event) => {
  if (event.target.closest('[aria-disabled="true"]')) event.preventDefault();
});

// A dialog is filled by htmx and opened when its content is there. Other parts of the page may be swapped
// meanwhile: only content that is new takes the focus.
const dialog = document.getElementById("dialog");
let shown = null;
document.addEventListener("htmx:after:swap", () => {
  dependentFields(document);
  const content = dialog?.querySelector("#dialog-content > *");
  if (content && content !== shown) open(content);
});

// What comes next has the focus, not the button that closes: errors, the first field, or the way on.
function open(content) {
  shown = content;
  if (!dialog.open) dialog.showModal();
  const inOrder = ["[data-error-summary]", ":is(input:not([type=hidden]), select, textarea)", ".modal-footer .btn-primary"];
  inOrder.map((wanted) => content.querySelector(wanted)).find(Boolean)?.focus();
}

dialog?.addEventListener("close", () => {
  const reload = dialog.querySelector("[data-reload-on-close]");
  document.getElementById("dialog-content").replaceChildren();
  if (reload) location.reload();
});

// data-only-for="engine=encoder tensor": shown while that field has one of the values.
function dependentFields(scope) {
  for (const field of scope.querySelectorAll("[data-only-for]")) {
    const [name, values] = field.dataset.onlyFor.split("=");
    const control = field.closest("form")?.elements[name];
    if (!control) continue;
    const show = () => (field.hidden = !values.split(" ").includes(control.value));
    if (!field.dataset.bound) {
      for (const one of control instanceof RadioNodeList ? control : [control]) one.addEventListener("change", show);
      field.dataset.bound = "1";
    }
    show();
  }
}
dependentFields(document);

// A table wider than its card fades out where there is more of it, and can be scrolled with the keyboard.
const MEASURABLE = new ResizeObserver((entries) => entries.forEach(({ target }) => hint(target.closest(".table-responsive"))));

function hint(box) {
  if (!box) return;
  const left = box.scrollWidth - box.clientWidth;
  const more = [box.scrollLeft > 1 && "before", box.scrollLeft < left - 1 && "after"].filter(Boolean);
  if (box.dataset.cut !== more.join(" ")) box.dataset.cut = more.join(" ");
  if (left > 1) {
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", box.closest(".card")?.querySelector(".card-title")?.textContent.trim() ?? document.title);
  } else {
    for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
  }
}

function watchTables() {
  for (const table of document.querySelectorAll(".table-responsive > table")) {
    MEASURABLE.observe(table);
    MEASURABLE.observe(table.parentElement);
  }
}
document.addEventListener("scroll", (event) => event.target.matches?.(".table-responsive") && hint(event.target), true);
document.addEventListener("htmx:after:swap", watchTables);
watchTables();

// A form is sent once; its button shows that it is under way.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button?.matches(".btn-primary, .btn-danger")) {
    button.classList.add("btn-loading");
    setTimeout(() => button.classList.remove("btn-loading"), 8000);
  }
});

document.querySelector("[data-error-summary]")?.focus();

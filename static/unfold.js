// Rows that open: `data-unfold` names the row, `aria-controls` what it shows. What is open stays open when the
// table is read anew.

const open = new Set();

function show(button) {
  const isOpen = open.has(button.dataset.unfold);
  button.setAttribute("aria-expanded", isOpen);
  button.querySelector(".ti").className = `ti ti-chevron-${isOpen ? "up" : "down"}`;
  document.getElementById(button.getAttribute("aria-controls")).hidden = !isOpen;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-unfold]");
  if (!button) return;
  const name = button.dataset.unfold;
  if (!open.delete(name)) open.add(name);
  show(button);
});
document.addEventListener("htmx:after:swap", () => document.querySelectorAll("[data-unfold]").forEach(show));

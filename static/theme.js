// Runs before the first paint so that no page flashes in the wrong theme.
(() => {
  const chosen = document.cookie.match(/(?:^|; )theme=(light|dark)/)?.[1];
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.bsTheme = chosen ?? system;
})();

// Sets the theme before the first paint. A classic script on purpose: modules run too late.
(function () {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function apply() {
    const choice = root.dataset.themeChoice;
    const theme = choice === "light" || choice === "dark" ? choice : dark.matches ? "dark" : "light";
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("conch:theme", { detail: theme }));
  }

  apply();
  dark.addEventListener("change", apply);
})();

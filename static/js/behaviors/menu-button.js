// The button that opens the navigation on narrow screens.
export function connect(button) {
  const menu = document.getElementById(button.getAttribute("aria-controls"));
  function show(open) {
    button.setAttribute("aria-expanded", String(open));
    menu.classList.toggle("is-open", open);
  }
  function toggle() {
    show(button.getAttribute("aria-expanded") !== "true");
  }
  function close(event) {
    if (event.key === "Escape" && menu.classList.contains("is-open")) {
      show(false);
      button.focus();
    }
  }
  button.addEventListener("click", toggle);
  document.addEventListener("keydown", close);
  return () => document.removeEventListener("keydown", close);
}

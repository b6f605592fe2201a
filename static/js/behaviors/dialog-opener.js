// A button with data-dialog="<id>" opens that <dialog>; buttons with data-close in it close it.
export function connect(button) {
  const dialog = document.getElementById(button.dataset.dialog);
  if (!dialog) return undefined;
  const open = (event) => {
    event.preventDefault();
    dialog.showModal();
  };
  const close = (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
  };
  const refocus = () => button.focus();
  button.addEventListener("click", open);
  dialog.addEventListener("click", close);
  dialog.addEventListener("close", refocus);
  return () => {
    dialog.removeEventListener("click", close);
    dialog.removeEventListener("close", refocus);
  };
}

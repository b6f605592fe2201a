// A button that copies the text of the element named by data-copy="<id>".
export function connect(button) {
  const label = button.textContent;
  let timer = 0;
  async function copy() {
    const source = document.getElementById(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = label), 2500);
  }
  button.addEventListener("click", copy);
  return () => clearTimeout(timer);
}

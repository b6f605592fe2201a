// Moves the focus to the element that just appeared, an error summary for instance.
export function connect(element) {
  element.focus();
}

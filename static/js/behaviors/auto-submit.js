// A filter form that sends itself when a choice changes; its button stays for those without script.
export function connect(form) {
  const send = (event) => {
    if (event.target.matches("select, input[type=checkbox], input[type=radio]")) form.requestSubmit();
  };
  form.addEventListener("change", send);
  form.classList.add("submits-itself");
}

// A page about a model that nobody serves: asks for itself again once the header says it is served.
export function connect() {
  const header = document.getElementById("model-header");
  if (!header || header.dataset.state === "ready") return undefined;
  const look = () => {
    if (header.dataset.state === "ready") window.location.reload();
  };
  header.addEventListener("conch:changed", look);
  return () => header.removeEventListener("conch:changed", look);
}

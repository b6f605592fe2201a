// The page of an upload, from the API's answer; only an address of this site is followed.
export function addressOf(upload) {
  const url = new URL(upload.page, window.location.origin);
  if (url.origin !== window.location.origin) throw new Error("The server named a page elsewhere.");
  return url.href;
}

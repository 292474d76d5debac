// Renews a page until a run is finished. `data-live` on its main part holds the seconds between two looks,
// 0 where nothing is to come; each part with a name in `data-part` is replaced when it differs.
"use strict";

const pace = () => Number(document.getElementById("main").dataset.live ?? 0);
const OPEN = `open ${location.pathname}`; // what is open while a page loads anew
const details = () => [...document.querySelectorAll("details")];
const nameOf = (one) => one.querySelector("summary").textContent;

function loadAnew() {
  sessionStorage.setItem(OPEN, JSON.stringify(details().filter((one) => one.open).map(nameOf)));
  location.reload();
}

function openAgain() {
  const names = JSON.parse(sessionStorage.getItem(OPEN) ?? "[]");
  sessionStorage.removeItem(OPEN);
  for (const one of details()) if (names.includes(nameOf(one))) one.open = true;
}

// A person's choice stays: what is open, ticked or in use is not replaced under the hand.
const inUse = (part) =>
  part.contains(document.activeElement) || part.querySelector("details[open], input:checked") !== null;

// What the server sent of each part: another script may have filled in more since.
const partsOf = (main) => [...main.querySelectorAll("[data-part]")];
const served = new Map(partsOf(document).map((part) => [part.dataset.part, part.innerHTML]));

async function renew() {
  const headers = { accept: "text/html", "x-genenv-renewing": "1" };
  const answer = await fetch(location.href, { headers });
  if (!answer.ok) return;
  const newer = new DOMParser().parseFromString(await answer.text(), "text/html");
  const [now, then] = [document, newer].map((one) => one.getElementById("main"));
  if (!then) return;
  if (now.dataset.epochs !== then.dataset.epochs) {
    loadAnew(); // the curves have another point
    return;
  }
  for (const part of partsOf(then)) {
    const name = part.dataset.part;
    const old = now.querySelector(`[data-part="${name}"]`);
    if (!old || inUse(old) || served.get(name) === part.innerHTML) continue;
    served.set(name, part.innerHTML);
    old.replaceChildren(...part.childNodes);
    document.dispatchEvent(new Event("renewed"));
  }
  now.dataset.live = then.dataset.live ?? 0;
}

async function watch() {
  while (pace() > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * pace()));
    if (document.hidden) continue;
    try {
      await renew();
    } catch {
      // The server was away: the next look may find it.
    }
  }
}

openAgain();
watch();

// Buttons that copy: the whole of an id that is cut, and the question of a table.
"use strict";

const DONE_MS = 2000;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A browser gives its clipboard to no page of another host that speaks plain HTTP.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "hidden";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// One listener for all of them: a page that renews itself brings new buttons.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy, button.copy-id");
  if (!button) return;
  const text = button.value || button.closest("details").querySelector("pre").textContent;
  const done = await copy(text);
  button.focus();
  const said = document.getElementById("said");
  said.textContent = "";
  const words = `copied ${button.value || "the question"}`;
  setTimeout(() => (said.textContent = done ? words : "this browser does not let the page copy"), 50);
  button.classList.toggle("done", done);
  setTimeout(() => button.classList.remove("done"), DONE_MS);
});

document.documentElement.classList.add("copies");

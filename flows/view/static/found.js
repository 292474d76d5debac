// What is wrong with each run of the list, and its tokens. An answer passes over all attempts of a run, so it is asked
// for once the list is there, for one run after the other, and only for those that a person sees.
"use strict";

const OLD_MS = 60_000;
const UNKNOWN = { words: "not known", first: "The server gave no answer: the page of the run says more.", severity: "", tokens: "" };
const answers = new Map(); // by the run: the answer, and when it came
const waiting = [];
let asking = false;

function say(cell, { words, first, severity, tokens }) {
  const link = document.createElement(severity ? "a" : "span");
  link.textContent = words;
  link.title = first;
  link.className = { failure: "bad", warning: "warning" }[severity] ?? "soft";
  if (severity) link.href = `/runs/${cell.dataset.findings}#findings`;
  cell.replaceChildren(link);
  cell.closest("tr").querySelector("[data-tokens]").textContent = tokens;
}

async function askOn() {
  if (asking) return;
  asking = true;
  while (waiting.length) {
    const cell = waiting.shift();
    const run = cell.dataset.findings;
    try {
      const answer = await fetch(`/runs/${run}/findings`);
      if (!answer.ok) throw new Error(await answer.text());
      answers.set(run, [await answer.json(), Date.now()]);
      say(cell, answers.get(run)[0]);
    } catch {
      say(cell, UNKNOWN);
    }
  }
  asking = false;
}

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    waiting.push(target);
  }
  askOn();
});

function begin() {
  for (const cell of document.querySelectorAll("[data-findings]")) {
    const [answer, came] = answers.get(cell.dataset.findings) ?? [];
    if (answer) say(cell, answer);
    if (!answer || Date.now() - came > OLD_MS) seen.observe(cell);
  }
}

document.addEventListener("renewed", begin); // new cells are empty
begin();

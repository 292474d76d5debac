// The page of a trace: a token is chosen by a click or the arrow keys, and words are searched for.
"use strict";

for (const group of document.querySelectorAll(".tokens")) {
  const tokens = [...group.querySelectorAll(".tok")];
  const said = group.parentElement.querySelector(".chosen");
  const advantage = said.dataset.advantage;
  let at = -1;

  const choose = (index) => {
    tokens[at]?.classList.remove("chosen");
    at = Math.min(Math.max(index, 0), tokens.length - 1);
    const token = tokens[at];
    if (!token) return;
    token.classList.add("chosen");
    token.scrollIntoView({ block: "nearest" });
    const weight = advantage && token.className.includes(" p") ? `, advantage ${advantage}` : "";
    said.textContent = `Token ${at + 1} of ${tokens.length}: ${token.title}${weight}`;
  };

  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  group.addEventListener("keydown", (event) => {
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose(at + steps[event.key]);
  });
  group.addEventListener("click", (event) => {
    const index = tokens.indexOf(event.target.closest(".tok"));
    if (index >= 0) choose(index);
  });
}

// Words are found across tokens and lines: each block is read as one text, whose places are kept.
function rangesOf(block, words) {
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const places = [];
  let text = "";
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    places.push([text.length, node]);
    text += node.data;
  }
  const placed = (offset) => {
    const [start, node] = places.findLast(([begin]) => begin <= offset);
    return [node, offset - start];
  };
  const lower = text.toLowerCase();
  if (lower.length !== text.length) return []; // a letter whose lower case is longer: places would be off
  const found = [];
  for (let begin = lower.indexOf(words); begin >= 0; begin = lower.indexOf(words, begin + words.length)) {
    const range = new Range();
    range.setStart(...placed(begin));
    const [node, last] = placed(begin + words.length - 1);
    range.setEnd(node, last + 1);
    found.push(range);
  }
  return found;
}

const within = document.getElementById("within");
if (within && CSS.highlights) {
  const [field, count] = [within.querySelector("input"), within.querySelector("[role=status]")];
  let found = [];
  let current = -1;

  const show = (index) => {
    current = found.length ? (index + found.length) % found.length : -1;
    CSS.highlights.set("found", new Highlight(...found));
    CSS.highlights.set("current", new Highlight(...found.slice(Math.max(current, 0), current + 1)));
    found[current]?.startContainer.parentElement.scrollIntoView({ block: "nearest" });
    count.textContent = field.value ? `${current + 1} of ${found.length}` : "";
  };

  field.addEventListener("input", () => {
    const words = field.value.toLowerCase();
    const blocks = words ? document.querySelectorAll(".turn:not(.expected) .words, .tokens") : [];
    found = [...blocks].flatMap((block) => rangesOf(block, words));
    show(0);
  });
  within.addEventListener("submit", (event) => {
    event.preventDefault();
    show(current + 1);
  });
  within.hidden = false;
}

// Keys of every page: / goes to the search, j and k to what comes after and before.
"use strict";

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return; // a person types
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find")?.select();
  }
  const way = { j: "next", k: "prev" }[event.key];
  if (way) document.querySelector(`a[rel=${way}]`)?.click();
});

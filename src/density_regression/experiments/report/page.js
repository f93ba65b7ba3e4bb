"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  const original = [...table.tBodies[0].rows];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    const value = (row) => row.cells[column].dataset.value;
    const order = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === undefined && b === undefined) {
        return sign * one.cells[column].textContent.localeCompare(other.cells[column].textContent);
      }
      if (a === undefined || b === undefined) return a === undefined ? 1 : -1;
      return sign * (Number(a) - Number(b));
    };
    table.tBodies[0].append(...original.slice().sort(order));
  }));
}
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const box = target && target.closest("details");
  if (box) { box.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();

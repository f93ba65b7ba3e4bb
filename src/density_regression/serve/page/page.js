// The form works without this. With it, every change is answered at once: the same page is fetched, and what has
// data-live is replaced.
"use strict";

const form = document.getElementById("form");
const spoken = document.getElementById("status");
let busy = false;
let again = false;
let speaking;

function address() {
  return "/?" + new URLSearchParams(new FormData(form));
}

function say(words) {
  // Not at every step of a slider: those who listen hear where it comes to rest.
  clearTimeout(speaking);
  speaking = setTimeout(() => (spoken.textContent = words), 500);
}

function replace(fresh) {
  const focused = document.activeElement && document.activeElement.id;
  for (const old of document.querySelectorAll("[data-live]")) {
    const part = fresh.getElementById(old.id);
    if (!part || part.innerHTML === old.innerHTML) continue;
    for (const open of old.querySelectorAll("details[open]")) {
      const same = part.querySelector("#" + CSS.escape(open.id));
      if (same) same.open = true;
    }
    old.replaceChildren(...part.childNodes);
  }
  // What had the focus may be another element of the same name now.
  if (focused && document.activeElement.id !== focused) document.getElementById(focused)?.focus();
}

async function update() {
  again = true;
  if (busy) return;
  busy = true;
  try {
    while (again) {
      again = false;
      const url = address();
      show(url, await answerOf(url));
    }
  } finally {
    busy = false;
  }
}

async function answerOf(url) {
  try {
    return await (await fetch(url)).text();
  } catch {
    return null;
  }
}

function show(url, text) {
  const fresh = new DOMParser().parseFromString(text ?? "", "text/html");
  const answer = fresh.querySelector("[data-spoken]");
  document.getElementById("summary").classList.toggle("stale", !answer);
  if (!answer) {
    say(text === null ? "The server did not answer." : fresh.getElementById("message")?.textContent ?? "The server made an error.");
    return;
  }
  say(answer.dataset.spoken);
  replace(fresh);
  history.replaceState(null, "", url);
}

// -- values and their sliders ---------------------------------------------------------------------------------------

const DAY = 86400000;

function asText(slider) {
  if (slider.dataset.kind !== "date") return slider.value;
  const box = boxOf(slider);
  return new Date(slider.valueAsNumber * DAY).toISOString().slice(0, box.type === "date" ? 10 : 16);
}

function boxOf(slider) {
  return document.getElementById("v" + slider.id.slice(1));
}

function describe(slider) {
  const value = slider.valueAsNumber;
  const outside = value < Number(slider.dataset.low) || value > Number(slider.dataset.high);
  slider.setAttribute("aria-valuetext", asText(slider) + (outside ? ", beyond the training range" : ""));
}

function onInput(event) {
  const input = event.target;
  const place = input.id.slice(1);
  if (input.type === "range") {
    boxOf(input).value = asText(input);
    describe(input);
  }
  const slider = document.getElementById("s" + place);
  if (slider && input.id === "v" + place && input.value !== "") {
    slider.value = slider.dataset.kind === "date" ? Date.parse(input.value + (input.type === "date" ? "" : "Z")) / DAY : input.value;
    describe(slider);
  }
  // A value that is given is not missing.
  const gap = document.getElementById("g" + place);
  if (gap && input !== gap && input.value !== "") gap.checked = false;
  if (input.id !== "model") update();
}

if (form) {
  form.addEventListener("input", onInput);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    update();
  });
  // Another model has other columns.
  document.getElementById("model")?.addEventListener("change", (event) => {
    location.href = "/?" + new URLSearchParams({ model: event.target.value });
  });
}

// -- a table --------------------------------------------------------------------------------------------------------

const upload = document.getElementById("upload");

async function score(file) {
  const told = document.getElementById("upload-status");
  told.textContent = `${file.name} is being scored …`;
  const url = upload.action.replace(/coverage=[^&]*/, "coverage=" + (document.getElementById("coverage")?.value ?? ""));
  try {
    const answer = await fetch(url + "&" + new URLSearchParams({ name: file.name }), {
      method: "POST",
      body: file,
      headers: { "content-type": "text/csv" },
    });
    if (!answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      told.textContent = fresh.getElementById("message")?.textContent ?? "The server made an error.";
      return;
    }
    const name = decodeURIComponent(answer.headers.get("content-disposition").split("''")[1]);
    const link = Object.assign(document.createElement("a"), { download: name, textContent: name });
    link.href = URL.createObjectURL(await answer.blob());
    const unfamiliar = answer.headers.get("x-unfamiliar");
    const words = `${answer.headers.get("x-rows")} rows scored${unfamiliar === null ? "" : `, ${unfamiliar} of them unfamiliar`}: `;
    told.replaceChildren(words, link);
    link.click();
  } catch {
    told.textContent = "The server did not answer.";
  }
}

if (upload) {
  const zone = upload.closest("section");
  upload.addEventListener("submit", (event) => {
    event.preventDefault();
    score(upload.elements.file.files[0]);
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) {
        upload.elements.file.files = event.dataTransfer.files;
        score(event.dataTransfer.files[0]);
      }
    });
  }
}

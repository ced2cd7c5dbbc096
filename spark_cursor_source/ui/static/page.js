// Live updates: the server says that there is a new snapshot, and htmx fetches the page again.
(function () {
  "use strict";
  const EVERY_MS = 1500;
  const SILENT_MS = 15000; // three beats of the server: see views.py
  const ANSWER_MS = 10000; // a refresh is answered from memory
  const lost = document.getElementById("lost");
  const follow = document.getElementById("follow");
  let live = true;
  let last = 0;
  let open = new Set();
  let heard = true;
  let answered = true;

  function refresh() {
    const busy = document.hidden || !live || !document.getSelection().isCollapsed;
    if (busy || Date.now() - last < EVERY_MS) return;
    last = Date.now();
    htmx.trigger(document.body, "snapshot");
  }

  // The process is there if it sends events and answers requests. While nothing is requested, events are enough.
  function connection() {
    const ok = heard && (answered || !live);
    lost.hidden = ok;
    document.body.classList.toggle("is-lost", !ok);
  }

  function age() {
    document.body.classList.toggle("is-old", document.querySelector("#live [data-old]") !== null);
  }

  function toggle() {
    live = !live;
    follow.setAttribute("aria-pressed", String(live));
    follow.querySelector(".word").textContent = live ? "Live" : "Stopped";
    connection();
    if (live) refresh();
  }

  // A browser ends an event source for good when the server answers with an error, so it is opened again. Likewise
  // when nothing is heard: a process that stands still or is cut off closes no connection.
  function listen() {
    const events = new EventSource("/events");
    let silence = 0;
    function hear() {
      heard = true;
      connection();
      expect();
    }
    function expect() {
      clearTimeout(silence);
      silence = setTimeout(function () {
        heard = false;
        connection();
        events.close();
        listen();
      }, SILENT_MS);
    }
    events.addEventListener("snapshot", function () { hear(); refresh(); });
    events.addEventListener("beat", hear);
    events.onopen = function () { answered = true; hear(); };
    events.onerror = function () {
      heard = false;
      connection();
      if (events.readyState !== EventSource.CLOSED) return;
      clearTimeout(silence);
      setTimeout(listen, 2000);
    };
    expect();
  }

  follow.addEventListener("click", toggle);
  document.addEventListener("keydown", function (event) {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const filter = document.getElementById("filter");
    if (event.key === "/" && filter) { event.preventDefault(); filter.focus(); }
    if (event.key === "l") toggle();
  });
  // A refresh replaces the content: what was open or scrolled stays as it was.
  let places = {};
  document.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.xhr.status >= 400 && event.detail.target.id === "live") event.detail.shouldSwap = event.detail.xhr.status === 404;
    open = new Set(Array.from(document.querySelectorAll("details[open][id]"), (one) => one.id));
    places = {};
    document.querySelectorAll(".scroll[aria-label]").forEach(function (one) {
      places[one.getAttribute("aria-label")] = one.scrollLeft;
    });
  });
  document.addEventListener("htmx:afterSettle", function () {
    age();
    open.forEach(function (id) { const one = document.getElementById(id); if (one) one.open = true; });
    document.querySelectorAll(".scroll[aria-label]").forEach(function (one) {
      one.scrollLeft = places[one.getAttribute("aria-label")] || 0;
    });
  });
  // The filter changes the address without a new page, and a refresh asks for the address of now.
  document.addEventListener("htmx:configRequest", function (event) {
    if (event.detail.elt.id !== "live") return;
    event.detail.path = location.pathname + location.search;
    event.detail.timeout = ANSWER_MS; // a request that hangs would hold back all later ones
  });
  // A typed value belongs to the answer beside it. Else the form would send the answer that was chosen before.
  document.addEventListener("input", function (event) {
    const choice = event.target.type === "text" && event.target.closest("fieldset p");
    if (choice) choice.querySelector("input[type=radio]").checked = true;
  });
  // A second click on a button would send its form twice. A page from the history may be used again.
  function buttons(form, off) { form.querySelectorAll("button").forEach(function (one) { one.disabled = off; }); }
  document.addEventListener("submit", function (event) { if (event.target.method === "post") buttons(event.target, true); });
  window.addEventListener("pageshow", function () { buttons(document, false); });
  function answer(ok) { answered = ok; connection(); }
  document.addEventListener("htmx:sendError", function () { answer(false); });
  document.addEventListener("htmx:timeout", function () { answer(false); });
  // The values are old too if refreshes are refused.
  document.addEventListener("htmx:beforeSwap", function (event) {
    const status = event.detail.xhr.status;
    if (event.detail.target.id === "live") answer(status < 400 || status === 404);
  });
  age();
  listen();
})();

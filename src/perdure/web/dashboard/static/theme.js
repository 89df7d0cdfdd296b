// Before the first paint, so that the page does not flash: what this browser chose.
(() => {
  const chosen = localStorage.getItem("perdure.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();

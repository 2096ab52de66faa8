// Runs before the first paint, so that the page does not flash in the other colours. It is a
// separate file because the content security policy forbids inline scripts. `data-theme` is the
// user's choice, `data-shown` the resulting theme.
(function () {
  var root = document.documentElement;
  try {
    var theme = localStorage.getItem("muster.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // If storage is not available, the system's colour scheme applies.
  }
  root.dataset.shown = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})();

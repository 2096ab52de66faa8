// Runs before the first paint, so that the page does not flash in the other colours. A file of its own: the policy bars inline
// scripts. `data-theme` is what the user chose, `data-shown` what that means now.
(function () {
  var root = document.documentElement;
  try {
    var theme = localStorage.getItem("muster.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage may be barred; the system's colour scheme then applies.
  }
  root.dataset.shown = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})();

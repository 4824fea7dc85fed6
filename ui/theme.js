// Sets the theme before anything is drawn, so that nothing flashes. A classic script: modules run too late. prefs.js is the switch.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("steadfast-theme");
  } catch {
    // Storage is off: the system decides.
  }
  if (theme === "dark" || theme === "light") document.documentElement.classList.add(theme);
})();

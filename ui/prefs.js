// What a person likes: theme, zone, density, single-letter keys. Kept in this browser; nothing of the server's is ever stored.

import { signal } from "./core/signal.js";

/** @param {string} name */
function read(name) {
  try {
    return localStorage.getItem(`steadfast-${name}`);
  } catch {
    return null;
  }
}

/** @param {string} name @param {string | null} value */
function write(name, value) {
  try {
    if (value === null) localStorage.removeItem(`steadfast-${name}`);
    else localStorage.setItem(`steadfast-${name}`, value);
  } catch {
    // Storage is off: it holds until the page is left.
  }
}

/** Times in UTC, or where the browser is. UTC unless chosen: it is what logs and the API say. */
export const utc = signal(read("zone") !== "local");
/** Single letters act (WCAG 2.1.4: can be switched off). */
export const letterKeys = signal(read("keys") !== "off");
export const roomy = signal(read("density") === "roomy");
/** `null`: as the system says. */
export const theme = signal(/** @type {string | null} */ (read("theme")));

export function toggleZone() {
  utc.value = !utc.peek();
  write("zone", utc.peek() ? null : "local");
}

export function toggleLetterKeys() {
  letterKeys.value = !letterKeys.peek();
  write("keys", letterKeys.peek() ? null : "off");
}

export function toggleDensity() {
  roomy.value = !roomy.peek();
  write("density", roomy.peek() ? "roomy" : null);
  document.documentElement.classList.toggle("roomy", roomy.peek());
}

/** system → dark → light → system */
export function nextTheme() {
  theme.value = theme.peek() === null ? "dark" : theme.peek() === "dark" ? "light" : null;
  write("theme", theme.peek());
  document.documentElement.classList.remove("dark", "light");
  if (theme.peek()) document.documentElement.classList.add(/** @type {string} */ (theme.peek()));
}

document.documentElement.classList.toggle("roomy", roomy.peek());

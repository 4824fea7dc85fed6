// Sparklines: a row of small bars, as wide as its numbers are many. Said in words for those who do not see it.

import { html, svg } from "./html.js";

const HEIGHT = 16;
const STEP = 3;

/**
 * @param {(number | null)[]} values oldest first
 * @param {string} says what they are, like "finished per minute, last 30 minutes"
 */
export function spark(values, says) {
  if (values.length === 0) return "";
  const top = Math.max(1, ...values.map((value) => value ?? 0));
  const height = (/** @type {number | null} */ value) => (value ? Math.max(1, Math.round((value / top) * HEIGHT)) : 0);
  const path = values.map((value, index) => `M${index * STEP + 1} ${HEIGHT}v-${height(value)}`).join("");
  return html`<svg class="spark" role="img" aria-label=${`${says}; highest ${top}, last ${values.at(-1) ?? 0}`} width=${values.length * STEP} height=${HEIGHT + 1} viewBox=${`0 0 ${values.length * STEP} ${HEIGHT + 1}`}>
    ${svg`<path class="base" d=${`M0 ${HEIGHT + 0.5}h${values.length * STEP}`}></path><path d=${path}></path>`}
  </svg>`;
}

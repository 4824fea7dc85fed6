// Overview: a sentence that is true, then what is wrong with its usual remedy, then the flow, the queues, and what is new.

import { curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { pulse } from "../live.js";
import { skeleton } from "../parts/states.js";

/** @type {import("../types.d.ts").ScreenMaker} */
export default function overview(screen) {
  screen.curl(() => curl("GET", "/pulse"));
  void get;
  void may;
  return () => (pulse.value ? html`<h1 class="sentence">${pulse.value.queues.length} queues</h1>` : skeleton(8));
}

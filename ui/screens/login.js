// Log in: a token is exchanged for a cookie that scripts cannot read. The token is in the field and in one request, nowhere else.

import { call, session } from "../api.js";
import { html } from "../core/html.js";
import { signal } from "../core/signal.js";
import { go, to } from "../router.js";

/** Only our own pages: nobody is sent elsewhere by a link. @param {URLSearchParams} query */
function target(query) {
  const wanted = query.get("to") ?? "";
  const home = to.overview();
  return wanted.startsWith(home) && !wanted.startsWith(to.login()) ? wanted : home;
}

/** @type {import("../types.d.ts").ScreenMaker} */
export default function login(screen) {
  const failure = signal(/** @type {any} */ (null));
  const busy = signal(false);
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("token"));
    const token = field.value.trim();
    field.value = "";
    if (!token || busy.peek()) return;
    busy.value = true;
    failure.value = null;
    try {
      const { data } = await call("POST", "/session", { body: { token }, timeoutMs: 60_000 });
      session.value = data;
      go(target(screen.query.peek()), { replace: true });
    } catch (error) {
      failure.value = error;
      field.focus();
    } finally {
      busy.value = false;
    }
  };
  return () => html`<div class="login">
    <h1>steadfast</h1>
    <p class="meta">This server wants a token.</p>
    ${session.value ? html`<p>You are in as ${session.value.name}. <a href=${to.overview()}>Overview</a></p>` : ""}
    <form class="form" @submit=${submit}>
      <label class="field"><span>Token</span><input name="token" type="password" autocomplete="current-password" required maxlength="512" ref=${(/** @type {HTMLElement} */ field) => queueMicrotask(() => field.focus())}></label>
      ${failure.value ? html`<p class="notice" data-severity="red" role="alert">${failure.value.status === 401 ? "That is no token of this server." : failure.value.status === 429 ? "Too many wrong tokens from this address; wait a little." : failure.value.message}</p>` : ""}
      <div><button type="submit" class="primary" ?disabled=${busy.value}>${busy.value ? "asking …" : "Log in"}</button></div>
    </form>
    <h2>What a token may</h2>
    <dl class="facts">
      <dt>read</dt><dd>look at everything but tokens and the audit</dd>
      <dt>operate</dt><dd>also cancel, redrive, pause, resume, drain; see the audit</dd>
      <dt>admin</dt><dd>everything: also delete, declare, limits, tokens</dd>
    </dl>
    <p class="meta">STEADFAST_ADMIN_TOKEN is the first one; it makes the others: <code>steadfast tokens create</code>. The browser keeps a cookie that ends after 12 h without use, and with the token.</p>
  </div>`;
}

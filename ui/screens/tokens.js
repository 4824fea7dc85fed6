// Tokens: who may do what, when it was last used; making one (its secret is shown once) and revoking it.

import { call, curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";
import { ago, copyButton } from "../parts/bits.js";
import { openDialog } from "../parts/dialog.js";
import { empty, forbidden, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";

/** @typedef {import("../types.d.ts").Schemas["Token"]} Token */

const EVERY_MS = 10_000;
const DAY_MS = 86_400_000;
const SCOPES = /** @type {[string, string][]} */ ([
  ["enqueue", "put jobs in"],
  ["read", "look at everything but tokens and audit"],
  ["work", "lease and settle jobs"],
  ["operate", "read, and cancel, redrive, pause, drain; read the audit"],
  ["admin", "everything, deleting and tokens included"],
]);
const LIVES = /** @type {[string, number | null][]} */ ([["30 days", 30 * DAY_MS], ["90 days", 90 * DAY_MS], ["a year", 365 * DAY_MS], ["for ever", null]]);

/** @type {import("../types.d.ts").ScreenMaker} */
export default function tokens(screen) {
  if (!may("admin")) return () => html`<h1>Tokens</h1>${forbidden("tokens are seen and made with the scope admin")}`;
  const list = resource((abort) => get("/tokens", { signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.curl(() => curl("GET", "/tokens"));
  screen.keys({ ...tableKeys({ keys: () => (list.peek().data ?? []).map((/** @type {Token} */ one) => one.id) }), n: ["new token", () => void make()] });

  const make = async () => {
    const name = signal("");
    const scopes = signal(new Set(["enqueue"]));
    const life = signal(/** @type {number | null} */ (90 * DAY_MS));
    const body = () => ({ name: name.value.trim(), scopes: [...scopes.value], ...(life.value === null ? {} : { expires_in_ms: life.value }) });
    let secret = "";
    const made = await openDialog({
      title: "New token",
      body: () => html`<div class="form"><label class="field"><span>name, for people</span><input type="text" maxlength="64" autocomplete="off" .value=${name.value} @input=${(/** @type {InputEvent} */ event) => (name.value = /** @type {HTMLInputElement} */ (event.target).value)}></label>
        <fieldset class="plain"><legend class="meta">may</legend>${SCOPES.map(([scope, says]) => html`<label class="check"><input type="checkbox" .checked=${scopes.value.has(scope)} @change=${() => {
          const next = new Set(scopes.value);
          if (!next.delete(scope)) next.add(scope);
          scopes.value = next;
        }}> <b>${scope}</b> <span class="meta">${says}</span></label>`)}</fieldset>
        <fieldset class="rates"><legend class="meta">expires after</legend>${LIVES.map(([says, ms]) => html`<label class="check"><input type="radio" name="life" .checked=${life.value === ms} @change=${() => (life.value = ms)}> ${says}</label>`)}</fieldset></div>`,
      confirm: "Make the token",
      ready: () => name.value.trim() !== "" && scopes.value.size > 0,
      curl: () => curl("POST", "/tokens", { body: body() }),
      act: async () => {
        secret = (await call("POST", "/tokens", { body: body() })).data.token;
      },
    });
    if (!made) return;
    await openDialog({
      title: "Store it now",
      body: () => html`<p>This is the only time that it is shown.</p><div class="command"><pre tabindex="0">${secret}</pre>${copyButton(() => secret, "token")}</div>`,
      confirm: "I have stored it",
      act: () => {},
    });
    secret = "";
    void list.refresh();
  };

  const revoke = async (/** @type {Token} */ one) => {
    const users = signal(/** @type {string[] | null} */ (null));
    get("/workers", { signal: screen.ending }).then((all) => (users.value = all.filter((/** @type {any} */ worker) => worker.token === one.name && worker.state !== "gone").map((/** @type {any} */ worker) => worker.worker)), () => (users.value = []));
    await openDialog({
      title: `Revoke ${one.name}`,
      body: () => html`<p>Who uses it gets no further within a second, sessions in browsers included. This cannot be undone.</p>
        ${users.value?.length ? html`<p class="notice" data-severity="amber">In use by ${users.value.slice(0, 5).join(", ")}${users.value.length > 5 ? ` and ${users.value.length - 5} more workers` : ""}.</p>` : html`<p class="meta">No worker that was seen lately uses it.</p>`}`,
      confirm: `Revoke ${one.name}`,
      danger: true,
      curl: () => curl("DELETE", `/tokens/${one.id}`),
      act: async () => {
        await call("DELETE", `/tokens/${encodeURIComponent(one.id)}`);
        toast({ says: `${one.name} is revoked`, href: to.audit({ target: `token:${one.id}` }), link: "audit" });
      },
    });
    void list.refresh();
  };

  /** @param {Token[]} rows */
  const view = (rows) => (rows.length === 0 ? empty("No tokens: everybody on this machine may do everything.", { command: "steadfast tokens create ci --scope enqueue" }) : table({
    label: "tokens",
    rows,
    key: (one) => one.id,
    cursor: at,
    mark: (one) => (one.expired ? "dimmed" : ""),
    columns: [
      { id: "name", label: "name", head: true, cell: (one) => one.name },
      { id: "scopes", label: "may", grow: true, cell: (one) => one.scopes.join(", ") },
      { id: "used", label: "last used", cell: (one) => (one.last_used_at ? ago(one.last_used_at) : html`<span class="meta">never</span>`) },
      { id: "expires", label: "expires", cell: (one) => (one.expired ? "has expired" : one.expires_at ? ago(one.expires_at) : html`<span class="meta">never</span>`) },
      { id: "made", label: "made", wide: true, cell: (one) => html`${ago(one.created_at)}${one.created_by ? html` <span class="meta">by ${one.created_by}</span>` : ""}` },
      { id: "id", label: "id", wide: true, cell: (one) => html`<code class="meta">${one.id}</code>` },
      { id: "act", label: "", cell: (one) => html`<button type="button" class="quiet" @click=${() => revoke(one)}>revoke …</button>` },
    ],
  }));
  return () => html`<div class="head"><h1>Tokens</h1><div class="acts"><button type="button" class="primary" @click=${make}>new token …</button></div></div>${loaded(list, view, { everyMs: EVERY_MS })}`;
}

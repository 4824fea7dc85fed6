// Rendering: tagged templates become DOM nodes, and later renders change only what differs.
//
// A template is parsed once per call site, from its static strings alone; values are only ever set as text, attributes,
// properties or listeners, never parsed (SECURITY.md S53). Keyed lists move nodes instead of rebuilding them, so that focus,
// selection and open details survive. It knows nothing of state: core/signal.js decides when to render.
//
// Holes: `<b>${text}</b>` · `name=${attribute}` (null, undefined, false: absent) · `class="a ${b}"` · `?disabled=${boolean}`
// · `.value=${property}` · `@click=${listener}` · `ref=${called once with the element}`. A child may be text, a template, a list, a
// Node, or nothing. Write no ">" inside attribute values of a template.

import { harmless, visible } from "./visible.js";

/** @typedef {{ strings: TemplateStringsArray, values: unknown[], svg: boolean }} Template */
/** @typedef {{ items: { key: string, value: unknown }[] }} Keyed */
/** @typedef {{ path: number[], kind: "child" | "attr" | "bool" | "prop" | "event" | "ref", name: string, strings: string[], first: number }} Part */
/** @typedef {{ element: HTMLTemplateElement, parts: Part[] }} Blueprint */

const MARK = "\u00a7";
const HOLES = /\u00a7(\d+)\u00a7/;

/** The only way from a string to HTML in the whole page: static strings of our own templates. */
const policy = /** @type {any} */ (globalThis).trustedTypes?.createPolicy("steadfast", { createHTML: (/** @type {string} */ text) => text });

/** @type {WeakMap<TemplateStringsArray, Blueprint>} */
const blueprints = new WeakMap();

/** @param {TemplateStringsArray} strings @param {unknown[]} values @returns {Template} */
export const html = (strings, ...values) => ({ strings, values, svg: false });

/** For what stands inside an `<svg>`. @param {TemplateStringsArray} strings @param {unknown[]} values @returns {Template} */
export const svg = (strings, ...values) => ({ strings, values, svg: true });

/**
 * A list whose nodes belong to keys.
 * @template T
 * @param {Iterable<T>} items
 * @param {(item: T) => unknown} key
 * @param {(item: T, index: number) => unknown} view
 * @returns {Keyed}
 */
export function repeat(items, key, view) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  const keyed = [...items].map((item, index) => {
    const given = String(key(item));
    const times = seen.get(given) ?? 0;
    seen.set(given, times + 1);
    return { key: times ? `${given}\0${times}` : given, value: view(item, index) };
  });
  return { items: keyed };
}

/** Parsed once. @param {Template} template @returns {Blueprint} */
const blueprint = (template) => blueprints.get(template.strings) ?? parse(template);

/** @param {Template} template @returns {Blueprint} */
function parse({ strings, svg }) {
  let text = "";
  let inTag = false;
  strings.forEach((part, index) => {
    text += part;
    const open = part.lastIndexOf("<");
    const close = part.lastIndexOf(">");
    if (open !== close) inTag = open > close;
    if (index < strings.length - 1) text += inTag ? `${MARK}${index}${MARK}` : `<!--${MARK}${index}${MARK}-->`;
  });
  const element = document.createElement("template");
  const markup = svg ? `<svg xmlns="http://www.w3.org/2000/svg">${text}</svg>` : text.replace(/^\s*\n\s*|\s*\n\s*$/g, "");
  element.innerHTML = policy ? policy.createHTML(markup) : markup;
  if (svg) {
    const root = /** @type {Element} */ (element.content.firstChild);
    root.replaceWith(...root.childNodes);
  }
  /** @type {Part[]} */
  const parts = [];
  walk(element.content, [], parts);
  const made = { element, parts };
  blueprints.set(strings, made);
  return made;
}

/** Finds the holes. @param {Node} node @param {number[]} path @param {Part[]} parts */
function walk(node, path, parts) {
  if (node instanceof Comment) {
    const hole = HOLES.exec(node.data);
    if (hole) parts.push({ path, kind: "child", name: "", strings: [], first: Number(hole[1]) });
    node.data = "";
    return;
  }
  if (node instanceof Element) {
    for (const attribute of [...node.attributes]) {
      const pieces = attribute.value.split(HOLES);
      if (pieces.length === 1) continue;
      const sigil = attribute.name[0] ?? "";
      const kind = sigil === "?" ? "bool" : sigil === "." ? "prop" : sigil === "@" ? "event" : attribute.name === "ref" ? "ref" : "attr";
      const name = kind === "attr" || kind === "ref" ? attribute.name : attribute.name.slice(1);
      // A listener by attribute would be text that is compiled.
      if (kind === "attr" && /^on|^srcdoc$|^style$/i.test(name)) throw new Error(`no hole in ${name}`);
      parts.push({ path, kind, name, strings: pieces.filter((_, index) => index % 2 === 0), first: Number(pieces[1]) });
      node.removeAttribute(attribute.name);
    }
  }
  node.childNodes.forEach((child, index) => walk(child, [...path, index], parts));
}

/** A template in the document. */
class Instance {
  /** @param {Template} template */
  constructor(template) {
    const { element, parts } = blueprint(template);
    this.strings = template.strings;
    this.fragment = /** @type {DocumentFragment} */ (document.importNode(element.content, true));
    // All nodes are found before any is changed: paths are positions.
    const nodes = parts.map((part) => part.path.reduce((node, index) => /** @type {Node} */ (node.childNodes[index]), /** @type {Node} */ (this.fragment)));
    this.parts = parts.map((part, index) => {
      const node = /** @type {Node} */ (nodes[index]);
      return part.kind === "child" ? new ChildSlot(/** @type {Comment} */ (node), part.first) : new AttributeSlot(/** @type {Element} */ (node), part);
    });
    this.update(template.values);
  }

  /** @param {unknown[]} values */
  update(values) {
    for (const part of this.parts) part.update(values);
  }
}

class AttributeSlot {
  /** @param {Element} element @param {Part} part */
  constructor(element, part) {
    this.element = element;
    this.part = part;
    this.last = /** @type {unknown} */ (undefined);
    this.listener = /** @type {unknown} */ (null);
  }

  /** @param {unknown[]} values */
  update(values) {
    const { kind, name, strings, first } = this.part;
    let value = values[first];
    if (kind === "attr" && (strings.length > 2 || strings.some(Boolean))) {
      value = strings.reduce((text, piece, index) => text + shown(values[first + index - 1]) + piece);
    }
    // What people type changes a property behind our back: it is compared with the element itself.
    const element = /** @type {any} */ (this.element);
    if (kind === "prop") return void (element[name] !== value && (element[name] = value));
    if (value === this.last) return;
    if (kind === "ref" && this.last === undefined) /** @type {(element: Element) => void} */ (value)(element);
    else if (kind === "bool") element.toggleAttribute(name, Boolean(value));
    else if (kind === "event") this.listen(value);
    else if (kind === "attr") setAttribute(element, name, value);
    this.last = value;
  }

  /** @param {unknown} listener */
  listen(listener) {
    if (!this.listener) this.element.addEventListener(this.part.name, this);
    this.listener = listener;
  }

  /** Called by the element. @param {Event} event */
  handleEvent(event) {
    if (typeof this.listener === "function") this.listener.call(this.element, event);
  }
}

/** @param {Element} element @param {string} name @param {unknown} value */
function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, harmless(name, value === true ? "" : String(value)));
}

class ChildSlot {
  /** @param {Comment} start a place in the document @param {number} index of its value */
  constructor(start, index) {
    this.start = start;
    this.index = index;
    this.end = document.createComment("");
    start.after(this.end);
    /** @type {Instance | null} */
    this.instance = null;
    /** @type {Map<string, ChildSlot> | null} */
    this.list = null;
    /** @type {Text | null} */
    this.text = null;
    /** @type {unknown} */
    this.last = undefined;
  }

  /** @param {unknown[]} values */
  update(values) {
    this.set(values[this.index]);
  }

  /** @param {unknown} value */
  set(value) {
    if (Array.isArray(value)) value = repeat(value.map((item, index) => ({ item, index })), ({ index }) => index, ({ item }) => item);
    if (value !== null && typeof value === "object") {
      if ("strings" in value) return this.setTemplate(/** @type {Template} */ (value));
      if ("items" in value) return this.setList(/** @type {Keyed} */ (value));
      if (value instanceof Node) return this.setNode(value);
    }
    const text = shown(value);
    if (!this.text) {
      this.clear();
      this.text = document.createTextNode("");
      this.end.before(this.text);
    }
    if (this.last !== text) this.text.data = visible(text);
    this.last = text;
  }

  /** @param {Node} node */
  setNode(node) {
    if (node === this.last) return;
    this.clear();
    this.end.before(node);
    this.last = node;
  }

  /** @param {Template} template */
  setTemplate(template) {
    // The very same one: whoever kept it says that nothing has changed.
    if (template === this.last) return;
    if (this.instance?.strings === template.strings) this.instance.update(template.values);
    else {
      this.clear();
      this.instance = new Instance(template);
      this.end.before(this.instance.fragment);
    }
    this.last = template;
  }

  /** @param {Keyed} keyed */
  setList({ items }) {
    if (!this.list) this.clear();
    const old = this.list ?? new Map();
    /** @type {Map<string, ChildSlot>} */
    const list = new Map();
    const keys = new Set(items.map(({ key }) => key));
    for (const [key, slot] of old) if (!keys.has(key)) slot.remove();
    const focused = document.activeElement;
    /** @type {Node} */
    let place = /** @type {Node} */ (this.start.nextSibling);
    for (const { key, value } of items) {
      let slot = old.get(key);
      if (!slot) {
        const start = document.createComment("");
        place.parentNode?.insertBefore(start, place);
        slot = new ChildSlot(start, 0);
      } else if (slot.start !== place) {
        slot.moveBefore(place);
      }
      slot.set(value);
      place = /** @type {Node} */ (slot.end.nextSibling);
      list.set(key, slot);
    }
    this.list = list;
    if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  /** Its nodes, both marks among them. */
  nodes() {
    const nodes = [/** @type {ChildNode} */ (this.start)];
    while (nodes.at(-1) !== this.end) nodes.push(/** @type {ChildNode} */ (nodes.at(-1)?.nextSibling));
    return nodes;
  }

  /** @param {Node} place */
  moveBefore(place) {
    for (const node of this.nodes()) place.parentNode?.insertBefore(node, place);
  }

  remove() {
    for (const node of this.nodes()) node.remove();
  }

  clear() {
    while (this.start.nextSibling && this.start.nextSibling !== this.end) this.start.nextSibling.remove();
    this.instance = this.list = this.text = null;
    this.last = undefined;
  }
}

/** @param {unknown} value */
const shown = (value) => (value === null || value === undefined || typeof value === "boolean" ? "" : String(value));

/** @type {WeakMap<Node, ChildSlot>} */
const roots = new WeakMap();

/** Makes `container` show `view`; its earlier content is changed, not replaced. @param {unknown} view @param {Element} container */
export function render(view, container) {
  let slot = roots.get(container);
  if (!slot) {
    container.replaceChildren(document.createComment(""));
    slot = new ChildSlot(/** @type {Comment} */ (container.firstChild), 0);
    roots.set(container, slot);
  }
  slot.set(view);
}

// State that knows who looks at it: signals, values computed from them, and effects that run again when one of them changed.
//
// Effects run together, once, after the code that changed something (in a microtask). Nothing here knows the DOM.

/** @typedef {{ run: () => void, sources: Set<Set<Observer>> }} Observer what is run, or marked, when a source has changed */
/** @template T @typedef {{ value: T, peek: () => T }} Signal */

/** @type {Observer | null} */
let current = null;
/** @type {Set<() => void>} */
const waiting = new Set();

function flush() {
  // An effect that changes what it reads would go on for ever.
  for (let round = 0; waiting.size > 0; round++) {
    if (round === 100) {
      waiting.clear();
      throw new Error("effects that set off each other");
    }
    const batch = [...waiting];
    waiting.clear();
    for (const work of batch) {
      // One broken view must not stop the others.
      try {
        work();
      } catch (error) {
        reportError(error);
      }
    }
  }
}

/** @param {() => void} work */
function schedule(work) {
  if (waiting.size === 0) queueMicrotask(flush);
  waiting.add(work);
}

/** @param {Set<Observer>} observers */
function track(observers) {
  if (!current) return;
  observers.add(current);
  current.sources.add(observers);
}

/** @param {Observer} observer */
function forget(observer) {
  for (const source of observer.sources) source.delete(observer);
  observer.sources.clear();
}

/**
 * @template T
 * @param {T} initial
 * @returns {Signal<T>}
 */
export function signal(initial) {
  let value = initial;
  /** @type {Set<Observer>} */
  const observers = new Set();
  return {
    get value() {
      track(observers);
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const observer of [...observers]) observer.run();
    },
    peek: () => value,
  };
}

/**
 * Computed when it is read and something it depends on has changed.
 * @template T
 * @param {() => T} compute
 * @returns {{ readonly value: T, peek: () => T }}
 */
export function computed(compute) {
  /** @type {T} */
  let value;
  /** @type {Set<Observer>} */
  const observers = new Set();
  let stale = true;
  /** @type {Observer} */
  const self = {
    run() {
      if (stale) return;
      stale = true;
      for (const observer of [...observers]) observer.run();
    },
    sources: new Set(),
  };
  const read = () => {
    if (stale) {
      forget(self);
      value = within(self, compute);
      stale = false;
    }
    return value;
  };
  return {
    get value() {
      track(observers);
      return read();
    },
    peek: read,
  };
}

/**
 * @template T
 * @param {Observer | null} observer
 * @param {() => T} work
 * @returns {T}
 */
function within(observer, work) {
  const outer = current;
  current = observer;
  try {
    return work();
  } finally {
    current = outer;
  }
}

/**
 * Runs now, and again whenever a signal that it read has changed, until it is ended.
 * @param {() => void} work
 * @param {AbortSignal} [ending]
 * @returns {() => void} ends it
 */
export function effect(work, ending) {
  /** @type {Observer} */
  const self = { run: () => schedule(effect), sources: new Set() };
  const effect = () => {
    if (ended) return;
    forget(self);
    within(self, work);
  };
  let ended = false;
  const end = () => {
    ended = true;
    forget(self);
    waiting.delete(effect);
  };
  ending?.addEventListener("abort", end, { once: true });
  if (!ending?.aborted) effect();
  return end;
}

/** Reads without looking. @template T @param {() => T} work @returns {T} */
export const untracked = (work) => within(null, work);

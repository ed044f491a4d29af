// Asking again and again: one question after the other, never two at once, none while nobody looks at the page, and more rarely the
// longer nobody answers.

const LONGEST_MS = 60_000;

// `work` gets an AbortSignal; it is asked at once, and then `everyMs` after each answer, until `signal` is aborted.
// Returns a function that asks at once.
export function poll(everyMs, signal, work) {
  let timer = 0;
  let running = false;
  let again = false;
  let wait = everyMs;

  async function turn() {
    clearTimeout(timer);
    timer = 0;
    if (signal.aborted || document.hidden) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await work(signal);
      wait = everyMs;
    } catch (error) {
      wait = Math.min(Math.max(wait, 1000) * 2, LONGEST_MS);
      if (!signal.aborted && !error.told) console.warn(error);
    }
    running = false;
    if (again) {
      again = false;
      turn();
    } else if (!signal.aborted && !document.hidden) {
      timer = setTimeout(turn, wait);
    }
  }

  function looked() {
    clearTimeout(timer);
    timer = 0;
    if (!document.hidden) turn();
  }

  document.addEventListener("visibilitychange", looked, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}

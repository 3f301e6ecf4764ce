// The stream of news, and questions to the API.

import { headers } from './session.js';

export { ask } from './session.js';

// Does one piece of work at a time, with the newest arguments; what comes meanwhile is done afterwards.
export function latest(work) {
  let running = null;
  let next = null;
  return (...wanted) => {
    next = wanted;
    running ??= (async () => {
      try {
        while (next) {
          const now = next;
          next = null;
          await work(...now);
        }
      } finally {
        running = null;
      }
    })();
    return running;
  };
}

// Follows the coordinator, and one run where there is one. A stream that breaks, or is silent for longer than the
// coordinator ever is, is opened again.
export class Live {
  static RETRY_MS = 1000;
  static SILENCE_MS = 6000;

  // on: {overview, run, state}: what to do with each news, and with 'live', 'reconnecting', 'refused'.
  constructor(on) {
    this.on = on;
    this.heard = 0;
    setInterval(() => this.#watch(), 1000);
  }

  follow(run) {
    this.run = run;
    this.#open();
  }

  #open() {
    this.call?.abort();
    clearTimeout(this.retry);
    this.heard = performance.now();
    const call = new AbortController();
    this.call = call;
    this.#read(call).catch(() => null).then(() => {
      if (call !== this.call || call.signal.aborted) return;
      this.on.state('reconnecting');
      this.retry = setTimeout(() => this.#open(), Live.RETRY_MS);
    });
  }

  // Reads the stream to its end. Not EventSource, which cannot send a key.
  async #read(call) {
    const reply = await fetch(`/api/live?${new URLSearchParams(this.run ? { run: this.run } : {})}`,
      { headers: headers(), signal: call.signal });
    if (reply.status === 401) {
      call.abort(); // until somebody signs in
      this.on.state('refused');
      return;
    }
    if (!reply.ok) return;
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      if (call !== this.call) return;
      const frames = (rest + piece.value).split('\n\n');
      rest = frames.pop();
      frames.forEach((frame) => this.#take(frame));
    }
  }

  #take(frame) {
    const [, name, data] = frame.match(/^event: (\w+)\ndata: (.*)$/) ?? [];
    if (!name) return;
    this.heard = performance.now();
    this.on.state('live');
    if (name !== 'alive') this.on[name](JSON.parse(data));
  }

  #watch() {
    if (!this.call || this.call.signal.aborted) return;
    if (performance.now() - this.heard < Live.SILENCE_MS) return;
    this.on.state('reconnecting');
    this.#open();
  }
}

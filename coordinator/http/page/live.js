// The stream of news, and questions to the API.

export async function ask(path, parameters = {}) {
  const reply = await fetch(`/api/${path}?${new URLSearchParams(parameters)}`);
  const body = await reply.json();
  if (!reply.ok) throw new Error(body.error);
  return body;
}

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
    this.source?.close();
    clearTimeout(this.retry);
    this.heard = performance.now();
    const source = new EventSource(`/api/live?${new URLSearchParams(this.run ? { run: this.run } : {})}`);
    this.source = source;
    const take = (name) => source.addEventListener(name, (message) => {
      this.heard = performance.now();
      this.on.state('live');
      if (name !== 'alive') this.on[name](JSON.parse(message.data));
    });
    ['overview', 'run', 'alive'].forEach(take);
    source.onerror = () => {
      if (source !== this.source) return;
      source.close();
      this.on.state('reconnecting');
      this.retry = setTimeout(() => this.#open(), Live.RETRY_MS);
    };
  }

  #watch() {
    if (!this.source || this.source.readyState === EventSource.CLOSED) return;
    if (performance.now() - this.heard < Live.SILENCE_MS) return;
    this.on.state('reconnecting');
    this.#open();
  }
}

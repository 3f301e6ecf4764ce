// What the page will ask first, asked before the rest of the page is there.
import { ask } from './live.js';

// The newest run that is under way, else the newest.
export function firstRun(runs) {
  return (runs.find((run) => !['done', 'stopped', 'failed'].includes(run.state)) ?? runs[0])?.run_id;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // an address that somebody wrote by hand
  }
}

// {view: 'run', run: ID}, {view: 'workers'}, ...; a run is left out where the address names none.
export function placeOf(hash) {
  const [view, run] = (hash.slice(1) || 'runs').split('/');
  return { view, run: view === 'run' ? decoded(run ?? '') : undefined };
}

// The runs that an address of the form #compare/ID,ID names.
export function comparedOf(hash) {
  return (hash.split('/')[1] ?? '').split(',').filter(Boolean).map(decoded);
}

let early = (async () => {
  const { view, run } = placeOf(location.hash);
  if (view !== 'run' && view !== 'runs') return null;
  const wanted = run ?? firstRun((await ask('overview')).runs);
  return wanted ? { run: wanted, steps: await ask('steps', { run: wanted }) } : null;
})().catch(() => null);

// The steps of a run: those that were asked for early, once.
export async function firstSteps(run) {
  const asked = early;
  early = null;
  const answer = await asked;
  return answer?.run === run ? answer.steps : ask('steps', { run });
}

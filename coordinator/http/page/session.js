// Who looks at the page: the key with which changes are asked for. It lives in this tab alone, and never in an address.
const PLACE = 'dashboard-key';

let me = null; // {name, role} of the key's owner, once the coordinator has said so
const listeners = [];

export const whoAmI = () => me;
export const onSession = (listener) => listeners.push(listener);

export function headers(more = {}) {
  const key = sessionStorage.getItem(PLACE);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function answerOf(reply) {
  const body = await reply.json().catch(() => ({ error: `the coordinator answered ${reply.status}` }));
  if (!reply.ok) throw Object.assign(new Error(body.error), { status: reply.status });
  return body;
}

export async function ask(path, parameters = {}) {
  return answerOf(await fetch(`/api/${path}?${new URLSearchParams(parameters)}`, { headers: headers() }));
}

// Asks for a change; the coordinator says no where the key's owner has no right to it.
export async function change(path, body) {
  return answerOf(await fetch(`/api/${path}`,
    { method: 'POST', headers: headers({ 'Content-Type': 'application/json' }), body: JSON.stringify(body) }));
}

function tell(owner) {
  me = owner;
  listeners.forEach((listener) => listener(me));
}

// Takes a key if the coordinator knows it.
export async function signIn(key) {
  const before = sessionStorage.getItem(PLACE);
  sessionStorage.setItem(PLACE, key.trim());
  try {
    tell(await ask('me'));
  } catch (error) {
    if (before) sessionStorage.setItem(PLACE, before);
    else sessionStorage.removeItem(PLACE);
    throw error;
  }
}

export function signOut() {
  sessionStorage.removeItem(PLACE);
  tell(null);
}

// After a reload: is the key of before still good?
export async function comeBack() {
  if (!sessionStorage.getItem(PLACE)) return;
  await ask('me').then(tell, (error) => { if (error.status === 401) signOut(); });
}

// What holds after every tick, whatever came in. In all builds.
#pragma once

namespace longhaul::coordinator {

class Failures;
class Ledger;
class Planning;
class Queue;
class Spares;
class Stages;
class Tuning;
class WorkerLinks;

struct Invariants {
  const Ledger& ledger;
  const WorkerLinks& links;
  const Spares& spares;
  const Failures& failures;
  const Stages& stages;
  const Tuning& tuning;
  const Planning& planning;
  const Queue& queue;
};
// Aborts the process where components contradict each other, or themselves.
void CheckInvariants(const Invariants& of);

}  // namespace longhaul::coordinator

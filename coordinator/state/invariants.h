// Conditions that hold after every tick, for any input. Checked in all builds.
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
// Aborts the process if a component contradicts itself or another component.
void CheckInvariants(const Invariants& of);

}  // namespace longhaul::coordinator

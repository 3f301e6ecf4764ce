// Passes each message of a worker to the component that handles it. Drops messages of another
// assignment than the run has, and messages of a worker that has no part in the run.
#pragma once

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/life/link_troubles.h"
#include "coordinator/state/life/stages.h"
#include "coordinator/state/life/standstill.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/life/tuning.h"
#include "coordinator/state/planning/planning.h"
#include "coordinator/state/queries/samples.h"
#include "coordinator/state/queries/traces.h"
#include "coordinator/state/recovery/departures.h"
#include "coordinator/state/shards/commits.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/verify/audits.h"
#include "coordinator/state/verify/verification.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/spares.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// The components that receive messages. They must outlive Messages.
struct Receivers {
  Health& health;
  WorkerLinks& links;
  Spares& spares;
  LinkTroubles& troubles;
  Tuning& tuning;
  Steps& steps;
  Standstill& standstill;
  Stages& stages;
  Shards& shards;
  Commits& commits;
  Planning& planning;
  Traces& traces;
  Samples& samples;
  Departures& departures;
  Verification& verification;
  Audits& audits;
};

class Messages {
 public:
  Messages(Ledger& ledger, const Receivers& to) : ledger_(ledger), to_(to) {}

  // Ignores messages of sessions that have ended.
  void On(event::WorkerSaid& said);

 private:
  void OnRunMessage(Worker& worker, const v1::WorkerMessage& message, Signature signature);
  // Notes the epochs that a worker names, so that the run's next one is above them.
  void NoteEpochs(Run& run, const Worker& worker, const v1::WorkerMessage& message);
  void OnStageMessage(Worker& worker, Run& run, const v1::WorkerMessage& message,
                      Signature signature);

  Ledger& ledger_;
  const Receivers to_;
};

}  // namespace longhaul::coordinator

// Decides when a run's hook runs: the program of the run file that gets the export of a checkpoint
// (hooks.on_checkpoint). First the parameters are gathered at the coordinator; then the shell
// writes the export and runs the program. A run never waits for its hook, and no hook changes what
// a run does: its result is an event. A run has one hook at a time. Of the checkpoints that are
// committed meanwhile the newest is next, and the others have no hook.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class Hooks : public MoveListener {
 public:
  Hooks(Ledger& ledger, Shards& shards);

  // kPermissionDenied: the run has a hook, and the submitter is no admin. kFailedPrecondition: the
  // coordinator was started without --allow-hooks.
  static Status CheckAllowed(const StateOptions& options, const RunSpec& spec,
                             const Submitter& submitter);

  // The checkpoint of this step was committed; it is no interim one.
  void OnCommit(const Run& run, uint64_t step);
  void On(const event::HookEnded& ended);
  // Begins what waits. Call this in every tick.
  void Advance();

  void OnMove(Run& /*run*/, const Transition& /*row*/) override {}
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  struct OfRun {
    uint64_t waiting = 0;    // step of the next checkpoint with a hook; 0: none
    uint64_t gathering = 0;  // step whose parameters are on their way; 0: none
    int tries = 0;           // how often workers were asked for these
    std::string problem;     // why the last of these failed
    bool waits = false;      // an event has told that a worker with a part is away
    uint64_t running = 0;    // step that the shell works at; 0: none
  };

  void Advance(const Run& run, OfRun& of);
  // Makes workers send what the coordinator lacks, or begins the program if it lacks nothing. While
  // a worker that has a part is away, nothing happens.
  void Gather(const Run& run, OfRun& of);

  Ledger& ledger_;
  Shards& shards_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator

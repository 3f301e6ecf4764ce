// Audits: other workers compute again what stages have computed, and the reports have to agree bit
// for bit. What is audited is the work of one stage between two saved states (checkpoints or copies
// for recovery), because the run has files of both states, with their hashes.
//
// The life of an audit:
//   1. A checkpoint is committed. By then all stages have reported all digests of the steps before
//      it. For each stage, a keyed hash decides whether its work since the checkpoint before is
//      audited (audit.share). No worker knows the key, so none knew of the draw while it computed.
//   2. A spare gets the files of the first state, and the recording of what the stage received.
//   3. The spare computes (v1::Audit), and answers with the reports that the stage should have
//   made.
//   4. If they differ, another spare computes the same, if there is one. Whoever is alone with its
//      result is evicted, and the run goes back to the first state (verdicts.h). Without a second
//      spare, the stage's worker is evicted.
//
// A restarted coordinator has forgotten the audits that were under way. Those of an epoch (attempt)
// end with it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/steps.h"
#include "coordinator/state/shards/commits.h"
#include "coordinator/state/shards/copies.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/verify/audit_compare.h"
#include "coordinator/state/verify/verdicts.h"
#include "coordinator/state/workers/spares.h"

namespace longhaul::coordinator {

class Audits : public MoveListener {
 public:
  // Listens to `steps`, `commits` and the checks of `shards` from now on.
  Audits(Ledger& ledger, const Spares& spares, Steps& steps, Shards& shards, Copies& copies,
         Commits& commits, Verdicts& verdicts);

  // Begins audits that wait, and gives up those that take too long. Call it in every tick.
  void Advance();
  void OnReport(Worker& worker, const v1::WorkerMessage& message);
  MonoTime NextWake() const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  struct Audit {
    uint64_t id = 0;
    CellId cell;
    WorkerId accused;
    std::string label;           // of the accused: "worker b (stage 1)"
    uint64_t from = 0, end = 0;  // steps of the two states
    AuditedWork said;
    v1::CheckpointFile recording;
    // The spare that computes, or gets the files for that.
    std::optional<WorkerId> auditor;
    bool computes = false;  // it has got the files
    bool by_way = false;    // the files go by way of the coordinator, because the direct way failed
    std::string failure;    // of the transfer under way; "": none so far
    MonoTime until;         // end of the wait for the auditor
    std::set<WorkerId> tried;
    // The first auditor, whose result differs from the accused's, as `difference` says.
    std::optional<WorkerId> accuser;
    std::string difference;
  };
  struct OfRun {
    // Reports of the finished steps since the last checkpoint.
    std::deque<std::vector<v1::StepReport>> kept;
    size_t kept_bytes = 0;
    void DropOldest();
    std::deque<Audit> audits;  // waiting, or under way at different spares
    uint64_t passed = 0;
    std::map<WorkerId, uint32_t> withheld;  // audits in a row that a worker made impossible
    bool told_of_lag = false;
    std::set<std::pair<WorkerId, WorkerId>> incomparable;  // of which an event was written
  };

  void OnStep(const Run& run, uint64_t step,
              std::span<const std::optional<v1::StepReport>> reports);
  void OnCommit(Run& run, uint64_t before, uint64_t step,
                std::span<const std::optional<v1::ShardReport>> reports);
  bool IsDrawn(const Run& run, const CellId& cell, uint64_t end) const;
  void Advance(Run& run, Audit& audit);
  // Chooses a spare, and begins to send it the files. May end the audit, where none is left.
  void Begin(Run& run, Audit& audit);
  void BeginMoves(Run& run, Audit& audit);
  void AfterMove(Run& run, const std::string& failure);
  void SendAudit(Run& run, Audit& audit);
  // Counts an audit that the worker made impossible, and evicts it after some in a row. May end the
  // epoch.
  void NoteWithheld(Run& run, const WorkerId& worker, const std::string& label, uint64_t from,
                    uint64_t end, const std::string& why);
  // The next functions may end the audit, and the epoch.
  //
  // The files cannot be had.
  void JudgeMissing(Run& run, Audit& audit);
  void Judge(Run& run, Audit& audit, const Worker& auditor, const v1::AuditReport& report);
  // Lets another spare compute, or ends the audit where none is left.
  void TryAnother(Run& run, Audit& audit);
  // Ends the audit. Its states may be dropped then.
  void End(Run& run, const Audit& audit);
  // Ends the audit, and evicts a worker because of it.
  void Evict(Run& run, const Audit& audit, const WorkerId& worker, const std::string& cause);

  // Returns a spare that has not tried this audit and is at no other one. Null: there is none now;
  // `later`: one is at another audit.
  Worker* NextAuditor(const Run& run, const Audit& audit, bool* later);
  void NotePinned(Run& run);
  Audit* Find(const Run& run, uint64_t id);
  // Returns the audit whose files are under way to a spare; null: there is none.
  Audit* Moving(const Run& run);

  Ledger& ledger_;
  const Spares& spares_;
  Shards& shards_;
  Copies& copies_;
  Verdicts& verdicts_;
  PerRun<OfRun> of_;
  uint64_t next_id_;
};

}  // namespace longhaul::coordinator

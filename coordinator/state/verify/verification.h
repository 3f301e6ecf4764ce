// Watches whether what the stages of a run say of each other agrees: digests of messages and state
// (books/digest_book.h), and what stages have found themselves. Writes events of the kind "verify",
// and asks for what the run file's section `verify` says (verdicts.h).
//
// Digests of an edge do not tell which of its ends errs. Each end is accused. The end that more
// others accuse is evicted; as long as both are accused alike, the step is repeated, and the second
// time both are evicted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/state/books/digest_book.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/verify/verdicts.h"

namespace longhaul::coordinator {

class Verification : public MoveListener {
 public:
  Verification(Ledger& ledger, Verdicts& verdicts) : ledger_(ledger), verdicts_(verdicts) {}

  // Takes a step report that the run accepts. May end the epoch.
  void OnStep(Run& run, const StageRecord& stage, const v1::StepReport& report,
              Signature signature);
  // Takes what a stage has found. May end the epoch.
  void OnFinding(Run& run, const StageRecord& stage, const v1::Finding& finding);

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override { of_.Forget(id); }

 private:
  // Step, edge and direction of an implausible tensor.
  using Outlier = std::tuple<uint64_t, uint32_t, bool>;
  // A kind of contradiction (nullopt: an implausible tensor), and a cell, or an edge and a
  // direction.
  using Subject = std::tuple<std::optional<Contradiction::Kind>, uint32_t, uint32_t>;
  struct OfRun {
    DigestBook book;                                        // of the present epoch
    std::map<uint64_t, std::vector<Contradiction>> differ;  // edges, by step
    // The others that have accused each worker, over an edge that differs.
    std::map<WorkerId, std::set<WorkerId>> accusers;
    std::set<std::pair<WorkerId, WorkerId>> repeated;  // ends of an edge whose step was repeated
    uint32_t evidence = 0;                             // edges that differed so far
    std::set<Outlier> outliers;                        // whose step was repeated
    std::map<Subject, uint64_t> told;                  // the step of the last event
    // Since when the cell lags behind others by kMostAhead steps.
    std::map<CellId, MonoTime> lags_since;
  };

  // Counts what was found, and writes an event unless there was one a few steps ago.
  void Tell(Run& run, const Subject& about, uint64_t step, const std::string& sentence);
  void Judge(Run& run, const Contradiction& found);
  // Judges the edges that differ in a step which all stages have reported: who is at fault shows
  // when all edges are known.
  void JudgeWholeSteps(Run& run);
  void JudgeEdges(Run& run, uint64_t step, const std::vector<Contradiction>& found);
  void JudgeOutlier(Run& run, const StageRecord& stage, const v1::Finding& finding);
  void JudgeState(Run& run, const StageRecord& stage, uint64_t step);
  // Looks for a stage that trains on and reports nothing. True: the epoch has ended.
  bool CheckLate(Run& run, uint64_t step);
  std::string Sentence(const Run& run, const Contradiction& found) const;
  // "edge 1, from worker a (stage 0) to worker b (stage 1)", in the direction of the message.
  std::string EdgeText(const Run& run, const CellId& from, const CellId& to, EdgeId edge) const;
  void AskForEvidence(const Run& run, const CellId& cell, uint64_t step, EdgeId edge);

  Ledger& ledger_;
  Verdicts& verdicts_;
  PerRun<OfRun> of_;
};

}  // namespace longhaul::coordinator

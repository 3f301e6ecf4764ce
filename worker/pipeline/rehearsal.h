// Faults and lies that a worker is told to commit by its own flag --rehearse, to try what the
// verification of runs does about them. Whoever runs a worker can make it lie anyway.
//
//   --rehearse flip-sent:step=5,direction=forward,times=1
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

enum class RehearsedKind : uint8_t {
  kFlipSent,          // a bit of what is sent, after its digest was taken
  kFlipState,         // a bit of a parameter, between two steps
  kScaleSent,         // what is sent, times `factor`, before it is encoded
  kWithholdDigests,   // step reports have none
  kMalformedDigests,  // digests that cannot be read
  // --- Lies that no digest contradicts, which audits find (worker/audit).
  kStaleSent,        // what is sent is the tensor before, once more
  kFlipLayer,        // one layer goes up the gradient instead of down
  kPoisonOptimizer,  // the optimizer's means of gradients, times `factor`
  kLieLoss,          // the reported loss, times `factor`
  // With a neighbour that has flip-sent: reports and records what the neighbour says that it has
  // sent, and computes from what has come.
  kCollude,
  kFalseAudit,  // the answer to an audit has another gradient norm
};

struct RehearsedFault {
  RehearsedKind kind = RehearsedKind::kFlipSent;
  uint64_t step = 1, until = UINT64_MAX;  // the first and the last step
  std::optional<Direction> direction;     // of what is sent; nullopt: both
  double factor = 1000;
  uint64_t times = UINT64_MAX;  // how often, with all attempts of a run
};

class Rehearsal {
 public:
  // Parses values of --rehearse. kInvalidArgument names the valid ones.
  static StatusOr<std::shared_ptr<Rehearsal>> Parse(const std::vector<std::string>& texts);
  explicit Rehearsal(const std::vector<RehearsedFault>& faults);

  // Called for each training tensor before it is encoded, with its values in host memory; empty
  // where they are on a GPU.
  void OnTensor(Step step, Direction direction, std::span<float> values);
  // Called for each encoded training tensor, after its digest was taken.
  void OnBlob(Step step, Direction direction, std::span<std::byte> blob);
  // Called before the passes of a step.
  Status OnState(Step step, Stage& stage);
  // Called after the update of a step, before the digest of the state is taken.
  Status OnUpdate(Step step, Stage& stage);
  // Called for each received training tensor. Returns what the worker says to have received
  // instead; nullopt: what has come.
  std::optional<std::vector<std::byte>> OnReceived(Step step, Direction direction,
                                                   std::span<const std::byte> blob);
  void OnReport(v1::StepReport* report);
  void OnAudit(v1::AuditReport* report);

 private:
  struct Planned {
    RehearsedFault fault;
    std::atomic<uint64_t> done{0};
  };
  // Counts the fault if it is due now. Null: none of this kind is.
  const RehearsedFault* Due(RehearsedKind kind, Step step,
                            std::optional<Direction> direction = std::nullopt);
  bool Plans(RehearsedKind kind) const;
  std::vector<std::unique_ptr<Planned>> planned_;
  std::mutex mutex_;
  std::map<Direction, std::vector<float>> sent_;  // the last tensors; for kStaleSent
  std::optional<NamedArray> layer_;               // before the update; for kFlipLayer
};

}  // namespace longhaul::worker

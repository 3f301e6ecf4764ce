#include "worker/stage/stage.h"

#include <span>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "worker/stage/network_stage.h"
#include "worker/stage/replay_stage.h"

namespace longhaul::worker {

StatusOr<std::vector<SharedParameter>> Stage::SharedParameters(SharedIn /*memory*/) {
  return absl::UnimplementedError("replicas cannot step this stage together");
}

Status Stage::TakeSharedValues() {
  return absl::UnimplementedError("replicas cannot train this stage together");
}

Status Stage::EndSharedStep(Step) {
  return absl::UnimplementedError("replicas cannot step this stage together");
}

StatusOr<uint64_t> Stage::StateDigest() const {
  LH_ASSIGN_OR_RETURN(const StageSnapshot snapshot, Snapshot());
  std::vector<uint64_t> digests;
  for (const std::vector<NamedArray>* arrays : {&snapshot.parameters, &snapshot.moments}) {
    for (const NamedArray& array : *arrays) digests.push_back(Checksum64(array.bytes()));
  }
  return Checksum64(std::as_bytes(std::span(digests)));
}

StatusOr<std::vector<float>> Stage::EvaluateLogits(Slice, const Input&, std::span<const Place>) {
  return absl::UnimplementedError("this stage computes no logits");
}

StatusOr<std::unique_ptr<Stage>> Stage::MakeTwin() const {
  return absl::UnimplementedError("steps cannot overlap in this stage");
}

Status Stage::TakeTurnFrom(Stage*) {
  return absl::UnimplementedError("steps cannot overlap in this stage");
}

StatusOr<std::unique_ptr<Stage>> Stage::Create(const StageOptions& options) {
  LH_CHECK(options.ranks.empty(), "a group is made by MakeGroupStage");
  if (options.replay) {
    LH_RETURN_IF_ERROR(CheckStageOptions(options));
    return MakeReplayStage(options);
  }
  return MakeNetworkStage(options, nullptr);
}

}  // namespace longhaul::worker

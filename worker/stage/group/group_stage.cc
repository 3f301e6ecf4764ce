#include "worker/stage/group/group_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "run/boundary/boundary_shape.h"
#include "run/model/family.h"
#include "run/model/share.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/group/joined_parameters.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/group/rank_threads.h"
#include "worker/stage/group/shared_reader.h"
#include "worker/stage/group/shares.h"
#include "worker/stage/group/tied_shares.h"
#include "worker/stage/network_stage.h"
#include "worker/stage/replay_stage.h"
#include "worker/stage/replicas/host_threads.h"
#include "worker/stage/snapshot/snapshot_shards.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kJoinLimit = absl::Minutes(2);

// A caller's mistake, which all ranks see before they exchange anything: the group survives it.
bool IsOfCaller(const Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

Status CheckGroup(const StageOptions& options) {
  LH_RETURN_IF_ERROR(CheckStageOptions(options));
  const auto refuse = [&](std::string_view what, std::string_view instead) {
    return InvalidArgument("group.tensor {}: {}; {}", options.ranks.size(), what, instead);
  };
  if (options.ranks.size() < 2 || options.group.tensor != options.ranks.size()) {
    return InvalidArgument(
        "expected a device for each of group.tensor's {} ranks, at least 2, got {}",
        options.group.tensor, options.ranks.size());
  }
  const GroupSpec& group = options.group;
  if (const bool experts = options.model.has_experts();
      (group.sequence || experts) && options.slice_tokens() % options.ranks.size() != 0) {
    return refuse(fmt::format("{}: ranks have equally many of a slice's {} tokens",
                              experts ? "experts" : "sequence", options.slice_tokens()),
                  experts ? "choose a number of ranks that divides them"
                          : "choose a number of ranks that divides them, or sequence false");
  }
  if (group.expert != 1 && !options.model.has_experts()) {
    return refuse(fmt::format("expert {}: no block of the model has experts", group.expert),
                  "choose group.expert 1, or family moe");
  }
  if (const std::vector<uint32_t> parts =
          model::PartsOfExperts(options.model, static_cast<uint32_t>(options.ranks.size()));
      std::ranges::find(parts, group.expert) == parts.end()) {
    return refuse(
        fmt::format("expected a group.expert that divides both the ranks and the {} experts "
                    "of a block, got {}",
                    options.model.experts, group.expert),
        "choose another one");
  }
  if (!(group.shared_channels >= 0 && group.shared_channels <= 1)) {
    return refuse(
        fmt::format("expected a share of channels from 0 to 1, got {}", group.shared_channels),
        "choose one of them");
  }
  if (group.shared_channels < 1 && group.sequence) {
    return refuse("a rank's own channels are of all tokens", "choose sequence false or p 1");
  }
  if (group.shared_channels == 1) return absl::OkStatus();
  if (options.train.optimizer.kind == OptimizerKind::kMuon) {
    return refuse(
        "muon updates whole matrices, and ranks with channels of their own have no whole ones",
        "choose p 1, or train.optimizer.kind adamw");
  }
  if (options.model.lora) {
    return refuse("train.lora adapts a published model, which has no channels of ranks' own",
                  "choose p 1, or no lora");
  }
  if (options.model.has_experts()) {
    return refuse("experts take a token's channels whole", "choose p 1 for a model with experts");
  }
  for (const model::PlacedParameter& placed : options.parameters()) {
    const model::Parameter& parameter = placed.parameter;
    if (parameter.role != model::Role::kBlock || !parameter.in_product ||
        !parameter.shape.is_matrix() || parameter.split.along != model::Along::kNothing) {
      continue;
    }
    return refuse(fmt::format("{} is whole on every rank, which must see the same", placed.Name()),
                  "choose sequence false and p 1 for a model with experts");
  }
  return absl::OkStatus();
}

RankGroup::Kind KindOf(const StageOptions& options, const RankCommunicators& ranks) {
  const GroupCollective backward = options.group.backward.what;
  return {.sequence = options.group.sequence,
          .hidden = options.model.hidden,
          .shared_channels = SharedChannels(options.model, options.group),
          .experts = options.group.expert,
          .backward_waits = backward == GroupCollective::kZip ||
                            // a switcher, which may take zip
                            (backward == GroupCollective::kAuto && ranks.backward != ranks.exact),
          .in_bf16 = options.train.dtype == ComputeDtype::kBf16};
}

// Counts the three communicators together. Communicators that are the same object stay the same.
void CountUse(RankCommunicators* ranks) {
  ranks->use = std::make_shared<RankUse>();
  const RankCommunicators raw = *ranks;
  ranks->blobs = raw.exact->blobs();
  ranks->exact = Counted(raw.exact, ranks->use);
  ranks->forward = raw.forward == raw.exact ? ranks->exact : Counted(raw.forward, ranks->use);
  ranks->backward = raw.backward == raw.exact     ? ranks->exact
                    : raw.backward == raw.forward ? ranks->forward
                                                  : Counted(raw.backward, ranks->use);
}

// The ranks themselves, which a stage and its twin share: their calls come one after another.
struct Crew {
  Crew(std::unique_ptr<collective::Rendezvous> opened, size_t ranks)
      : rendezvous(std::move(opened)), groups(ranks), threads(static_cast<uint32_t>(ranks)) {}

  const std::unique_ptr<collective::Rendezvous> rendezvous;
  std::vector<std::unique_ptr<RankGroup>> groups;  // by rank
  RankThreads threads;
};

class GroupStage final : public Stage {
 public:
  GroupStage(const StageOptions& options, Shares shares, std::shared_ptr<Crew> crew)
      : options_(options),
        shares_(std::move(shares)),
        joined_(shares_, HostThreads(options)),
        crew_(std::move(crew)),
        ranks_(options.ranks.size()) {}

  Status Start(const MakeCommunicators& make_communicators) {
    const Deadline deadline = Deadline::After(kJoinLimit);
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(
          std::shared_ptr<collective::Member> member,
          collective::Member::Join(crew_->rendezvous->id(),
                                   {.rank = rank, .size = static_cast<uint32_t>(ranks_.size())},
                                   deadline));
      auto communicators = make_communicators(member, options_.ranks[rank], deadline);
      if (!communicators.ok()) {
        member->End(communicators.status());
        return communicators.status();
      }
      const bool recordable = communicators->recordable;
      CountUse(&*communicators);
      const RankGroup::Kind kind = KindOf(options_, *communicators);
      crew_->groups[rank] =
          std::make_unique<RankGroup>(kind, *std::move(communicators), std::move(member));
      StageOptions own = options_;
      own.device = options_.ranks[rank];
      own.graphs = own.graphs && recordable;
      // Otherwise this rank's copy of the boundary would queue on rank 0's stream behind
      // collectives that wait for this rank: a deadlock.
      if (own.device != own.ranks.front()) ReadApartFrom(TorchDevice(own.ranks.front()));
      LH_ASSIGN_OR_RETURN(ranks_[rank], MakeNetworkStage(own, crew_->groups[rank].get()));
      return absl::OkStatus();
    }));
    std::vector<TiedMatrix*> tied;
    for (const auto& rank : ranks_) tied.push_back(rank->tied_matrix());
    tied_ = JoinTied(std::move(tied), [this](const auto& call) { return All(call); });
    return absl::OkStatus();
  }

  Status PreparePasses(uint32_t in_flight) override {
    return All([&](uint32_t rank) { return ranks_[rank]->PreparePasses(in_flight); });
  }
  StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) override {
    return Passed([&](uint32_t rank) { return ranks_[rank]->Forward(slice, input); });
  }
  StatusOr<double> Loss(Slice slice) const override { return ranks_[0]->Loss(slice); }
  StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) override {
    return Passed([&](uint32_t rank) { return ranks_[rank]->Backward(slice, output_gradient); });
  }
  StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                   double* loss) override {
    std::vector<double> losses(ranks_.size());
    LH_ASSIGN_OR_RETURN(std::optional<BoundaryTensor> output, Passed([&](uint32_t rank) {
                          return ranks_[rank]->Evaluate(slice, input, &losses[rank]);
                        }));
    if (options_.last) *loss = losses[0];
    return output;
  }
  PreferenceSums TakePreferences() override { return ranks_[0]->TakePreferences(); }
  StatusOr<std::vector<float>> EvaluateLogits(Slice slice, const Input& input,
                                              std::span<const Place> places) override {
    std::vector<std::vector<float>> parts(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(parts[rank], ranks_[rank]->EvaluateLogits(slice, input, places));
      return absl::OkStatus();
    }));
    // Each rank knows its share of the vocabulary.
    std::vector<float> logits = std::move(parts[0]);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      std::ranges::transform(logits, parts[rank], logits.begin(), [](float a, float b) {
        return b == -std::numeric_limits<float>::infinity() ? a : b;
      });
    }
    return logits;
  }
  StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const override {
    std::vector<double> own(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(const SquaredNorm norm, ranks_[rank]->AddSquaredGradientNorm(0));
      own[rank] = norm.own;
      return absl::OkStatus();
    }));
    SquaredNorm norm{.sum = sum};
    for (const double one : own) norm.own += one;
    norm.sum += norm.own;
    return norm;
  }
  Status OptimizerStep(Step step, double learning_rate, double gradient_scale) override {
    return All([&](uint32_t rank) -> Status {
      // The norm has been computed, so all gradients are there, and a faulty message is known by
      // now.
      const RankCommunicators& ranks = crew_->groups[rank]->communicators();
      for (const auto& communicator : {ranks.exact, ranks.forward, ranks.backward}) {
        LH_RETURN_IF_ERROR(communicator->fault());
      }
      return ranks_[rank]->OptimizerStep(step, learning_rate, gradient_scale);
    });
  }
  Status SkipStep(Step step) override {
    return All([&](uint32_t rank) { return ranks_[rank]->SkipStep(step); });
  }
  StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory) override {
    LH_CHECK(memory == SharedIn::kHost, "parameters of ranks are put together in host memory");
    std::vector<std::vector<SharedParameter>> of_ranks(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(of_ranks[rank], ranks_[rank]->SharedParameters(memory));
      return absl::OkStatus();
    }));
    return joined_.Join(std::move(of_ranks));
  }
  Status EndSharedStep(Step step) override {
    return All([&](uint32_t rank) {
      joined_.Cut(rank);
      return ranks_[rank]->EndSharedStep(step);
    });
  }
  Status TakeSharedValues() override {
    return All([&](uint32_t rank) {
      joined_.Cut(rank);
      return ranks_[rank]->TakeSharedValues();
    });
  }
  StatusOr<std::unique_ptr<Stage>> MakeTwin() const override {
    auto twin = std::make_unique<GroupStage>(options_, shares_, crew_);
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(twin->ranks_[rank], ranks_[rank]->MakeTwin());
      return absl::OkStatus();
    }));
    return twin;
  }
  Status TakeTurnFrom(Stage* twin) override {
    auto* const other = dynamic_cast<GroupStage*>(twin);
    LH_CHECK(other != nullptr && other->crew_ == crew_, "a group takes its turn from its twin");
    return All(
        [&](uint32_t rank) { return ranks_[rank]->TakeTurnFrom(other->ranks_[rank].get()); });
  }
  StatusOr<StageSnapshot> Snapshot() const override {
    std::vector<StageSnapshot> parts(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(parts[rank], ranks_[rank]->Snapshot());
      return absl::OkStatus();
    }));
    return shares_.Join(parts);
  }
  StatusOr<uint64_t> StateDigest() const override {
    std::vector<uint64_t> digests(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(digests[rank], ranks_[rank]->StateDigest());
      return absl::OkStatus();
    }));
    return Checksum64(std::as_bytes(std::span(digests)));
  }
  Status Restore(const StageSnapshot& snapshot) override {
    // As in a stage of one rank: shares are cut from whole arrays.
    if (!options_.shares_step && ArrayPieces(snapshot.moments).HasPieces()) {
      LH_ASSIGN_OR_RETURN(const StageSnapshot whole, WithoutPieces(snapshot));
      return Restore(whole);
    }
    return All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(const StageSnapshot part, shares_.Cut(snapshot, rank));
      return ranks_[rank]->Restore(part);
    });
  }
  Status Load(const ReadParameter& read) override {
    SharedReader reader(shares_, read, static_cast<uint32_t>(ranks_.size()));
    return All([&](uint32_t rank) -> Status {
      Status status = ranks_[rank]->Load(reader.OfRank(rank));
      if (!status.ok()) reader.End();
      return status;
    });
  }
  Status DropStep() override {
    // Ranks may have given up a pass at different places: an ended group cannot go on.
    LH_RETURN_IF_ERROR(crew_->groups[0]->status());
    return All([&](uint32_t rank) { return ranks_[rank]->DropStep(); });
  }
  uint64_t steps() const override { return ranks_[0]->steps(); }
  TiedMatrix* tied_matrix() override { return tied_.get(); }
  // Routing is the same on all ranks, so rank 0 knows the tokens of every expert.
  std::vector<std::vector<int64_t>> TokensOfExperts() const override {
    return ranks_[0]->TokensOfExperts();
  }

  CollectiveUse collectives() const override {
    CollectiveUse use;
    const RankCommunicators& first = crew_->groups[0]->communicators();
    use.forward = first.forward->Describe();
    use.backward = first.backward->Describe();
    double seconds = 0;
    for (const std::unique_ptr<RankGroup>& group : crew_->groups) {
      const RankUse& own = *group->communicators().use;
      const collective::Blobs* const blobs = group->communicators().blobs;
      const auto sent = [&](collective::Op op) {
        return own.SentBytes(op) + (blobs == nullptr ? 0 : blobs->sent_bytes(op));
      };
      use.sent.all_reduce += sent(collective::Op::kAllReduce);
      use.sent.all_gather += sent(collective::Op::kAllGather);
      use.sent.reduce_scatter += sent(collective::Op::kReduceScatter);
      use.sent.all_to_all += sent(collective::Op::kAllToAll);
      seconds += own.seconds;
    }
    if (first.exact->device() < 0) use.seconds = seconds / static_cast<double>(ranks_.size());
    return use;
  }

  uint64_t parameter_count() const override {
    uint64_t count = 0;
    for (const model::PlacedParameter& placed : options_.parameters()) {
      if (!placed.parameter.frozen) count += placed.parameter.shape.elements();
    }
    return count;
  }
  uint64_t peak_memory_bytes() const override {
    uint64_t most = 0;
    for (const auto& rank : ranks_) most = std::max(most, rank->peak_memory_bytes());
    return most;
  }
  // Ranks on the CPU share its memory. GPUs have their own, and the fullest one counts.
  uint64_t memory_bytes() const override {
    uint64_t sum = 0, most = 0;
    for (const auto& rank : ranks_) {
      sum += rank->memory_bytes();
      most = std::max(most, rank->memory_bytes());
    }
    return options_.device.cuda_index ? most : sum + joined_.memory_bytes();
  }

 private:
  // Runs `call` on every rank at once. A rank that fails ends the group, because the others wait
  // for it.
  Status All(const std::function<Status(uint32_t rank)>& call) const {
    const std::vector<Status> results = crew_->threads.Run([&](uint32_t rank) {
      Status status = call(rank);
      if (!status.ok() && !IsOfCaller(status) && crew_->groups[rank]) {
        crew_->groups[rank]->End(status);
      }
      return status;
    });
    return FirstOf(results);
  }
  // Prefers the cause to the other ranks' kAborted, which only repeats it.
  static Status FirstOf(const std::vector<Status>& results) {
    for (const bool ends_of_group : {false, true}) {
      for (size_t rank = 0; rank < results.size(); ++rank) {
        const Status& status = results[rank];
        if (status.ok() || (absl::IsAborted(status) && !ends_of_group)) continue;
        if (IsOfCaller(status) || absl::IsAborted(status)) return status;
        return Status(status.code(), fmt::format("rank {}: {}", rank, Message(status)));
      }
    }
    return absl::OkStatus();
  }

  template <class Call>
  StatusOr<std::optional<BoundaryTensor>> Passed(const Call& call) {
    std::vector<std::optional<BoundaryTensor>> outputs(ranks_.size());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) -> Status {
      LH_ASSIGN_OR_RETURN(outputs[rank], call(rank));
      return absl::OkStatus();
    }));
    return std::move(outputs[0]);
  }

  const StageOptions options_;
  const Shares shares_;
  JoinedParameters joined_;  // of SharedParameters
  const std::shared_ptr<Crew> crew_;
  std::vector<std::unique_ptr<Stage>> ranks_;  // each rank's stage over its share
  std::unique_ptr<TiedMatrix> tied_;           // or null
};

}  // namespace

StatusOr<std::unique_ptr<Stage>> MakeGroupStage(const StageOptions& options,
                                                const MakeCommunicators& make_communicators) {
  LH_RETURN_IF_ERROR(CheckGroup(options));
  // Its times are those of all ranks together.
  if (options.replay) return MakeReplayStage(options);
  LH_ASSIGN_OR_RETURN(Shares shares,
                      Shares::Of(options.model, options.parameters(),
                                 {.count = static_cast<uint32_t>(options.ranks.size()),
                                  .experts = options.group.expert}));
  LH_ASSIGN_OR_RETURN(std::unique_ptr<collective::Rendezvous> rendezvous,
                      collective::Rendezvous::Open());
  auto stage = std::make_unique<GroupStage>(
      options, std::move(shares),
      std::make_shared<Crew>(std::move(rendezvous), options.ranks.size()));
  LH_RETURN_IF_ERROR(stage->Start(make_communicators));
  return stage;
}

}  // namespace longhaul::worker

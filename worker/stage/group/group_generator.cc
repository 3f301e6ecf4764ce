#include "worker/stage/group/group_generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "run/boundary/boundary_shape.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/group/rank_group.h"
#include "worker/stage/group/rank_threads.h"
#include "worker/stage/group/shared_reader.h"
#include "worker/stage/group/shares.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kRanksJoinLimit = absl::Minutes(2);

class GroupGenerator final : public Generator {
 public:
  GroupGenerator(const StageOptions& options, std::unique_ptr<collective::Rendezvous> rendezvous)
      : options_(options),
        rendezvous_(std::move(rendezvous)),
        ranks_(options.ranks.size()),
        threads_(static_cast<uint32_t>(options.ranks.size())) {}

  Status Start(const Shares& shares, const ReadParameter& read,
               const MakeCommunicators& make_communicators) {
    SharedReader reader(shares, read, static_cast<uint32_t>(ranks_.size()));
    return All([&](uint32_t rank) {
      Status status = StartRank(rank, make_communicators, reader.OfRank(rank));
      if (!status.ok()) reader.End();
      return status;
    });
  }

  void Clear() override {
    for (Rank& rank : ranks_) rank.seen = {};
  }

  StatusOr<std::span<const float>> Next(std::span<const int32_t> ids) override {
    LH_RETURN_IF_ERROR(CheckNext(options_.model, ranks_[0].seen.tokens, ids));
    logits_.resize(options_.vocabulary_rows());
    LH_RETURN_IF_ERROR(All([&](uint32_t rank) {
      return CallTorch("generating", options_.threads, [&] { Extend(ids, &ranks_[rank], rank); });
    }));
    return logits_;
  }

 private:
  struct Rank {
    std::unique_ptr<RankGroup> group;
    std::unique_ptr<Model> model;
    Seen seen;
  };

  Status StartRank(uint32_t rank, const MakeCommunicators& make_communicators,
                   const ReadParameter& read) {
    const Deadline deadline = Deadline::After(kRanksJoinLimit);
    const collective::Place place = {.rank = rank, .size = static_cast<uint32_t>(ranks_.size())};
    LH_ASSIGN_OR_RETURN(std::shared_ptr<collective::Member> member,
                        collective::Member::Join(rendezvous_->id(), place, deadline));
    auto communicators = make_communicators(member, options_.ranks[rank], deadline);
    if (!communicators.ok()) {
      member->End(communicators.status());
      return communicators.status();
    }
    const RankGroup::Kind kind = {.hidden = options_.model.hidden,
                                  .shared_channels = SharedChannels(options_.model, options_.group),
                                  .in_bf16 = options_.train.dtype == ComputeDtype::kBf16};
    ranks_[rank].group =
        std::make_unique<RankGroup>(kind, *std::move(communicators), std::move(member));
    StageOptions own = options_;
    own.device = options_.ranks[rank];
    return CallTorch("making the model", own.threads, [&]() -> Status {
      ranks_[rank].model = Model::Create(own, ranks_[rank].group.get());
      return ranks_[rank].model->Load(read);
    });
  }

  // Writes this rank's rows of the vocabulary.
  void Extend(std::span<const int32_t> ids, Rank* rank, uint32_t index) {
    const at::Tensor input =
        at::from_blob(const_cast<int32_t*>(ids.data()), {1, static_cast<int64_t>(ids.size())},
                      at::kInt)
            .to(at::TensorOptions(at::kLong).device(TorchDevice(options_.ranks[index])));
    const at::Tensor part =
        rank->model->Extend(input, &rank->seen).to(at::kFloat).cpu().contiguous();
    std::copy_n(part.const_data_ptr<float>(), part.numel(),
                logits_.begin() + rank->model->first_logit());
  }

  // Runs `call` on every rank at once. A rank that fails ends the group, because the others wait
  // for it.
  Status All(const std::function<Status(uint32_t rank)>& call) {
    const std::vector<Status> results = threads_.Run([&](uint32_t rank) {
      Status status = call(rank);
      if (!status.ok() && ranks_[rank].group) ranks_[rank].group->End(status);
      return status;
    });
    const auto cause = std::ranges::find_if(
        results, [](const Status& status) { return !status.ok() && !absl::IsAborted(status); });
    if (cause != results.end()) return *cause;
    for (const Status& status : results) LH_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  const StageOptions options_;
  const std::unique_ptr<collective::Rendezvous> rendezvous_;
  std::vector<Rank> ranks_;
  std::vector<float> logits_;
  RankThreads threads_;
};

}  // namespace

StatusOr<std::unique_ptr<Generator>> MakeGroupGenerator(
    const GeneratorOptions& options, const GroupSpec& group, const std::vector<DeviceName>& devices,
    const ReadParameter& read, const MakeCommunicators& make_communicators) {
  if (devices.size() < 2 || group.tensor != devices.size()) {
    return InvalidArgument("expected a device for each of {} ranks, at least 2, got {}",
                           group.tensor, devices.size());
  }
  StageOptions stage = StageOptionsOf(options);
  stage.group = group;
  stage.ranks = devices;
  LH_ASSIGN_OR_RETURN(const Shares shares,
                      Shares::Of(stage.model, stage.parameters(), {.count = group.tensor}));
  LH_ASSIGN_OR_RETURN(auto rendezvous, collective::Rendezvous::Open());
  auto generator = std::make_unique<GroupGenerator>(stage, std::move(rendezvous));
  LH_RETURN_IF_ERROR(generator->Start(shares, read, make_communicators));
  return generator;
}

}  // namespace longhaul::worker

#include "worker/ranks/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/log.h"
#include "run/boundary/boundary_shape.h"
#include "transport/collective/exact/factory.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/mapped/factory.h"
#include "transport/collective/nccl/factory.h"
#include "transport/collective/switcher/factory.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::worker {
namespace {

using collective::Communicator;
namespace switcher = collective::switcher;

// Whether one of these calls is not the native communicator's.
bool Switches(const std::vector<switcher::Decision>& decisions,
              const std::vector<BlockExchange>& exchanges) {
  return std::ranges::any_of(exchanges, [&](const BlockExchange& exchange) {
    return std::ranges::any_of(decisions, [&](const switcher::Decision& decision) {
      size_t line = 0;
      for (const switcher::Range& range : decision.ranges) {
        if (range.bytes <= exchange.bytes) line = range.line;
      }
      return decision.op == exchange.op && line != 0;
    });
  });
}

std::string Words(const std::vector<BlockExchange>& exchanges) {
  std::string words;
  for (const auto& [op, bytes] : exchanges) {
    words += fmt::format("{}{} of {} bytes", words.empty() ? "" : ", ", ToString(op), bytes);
  }
  return words;
}

// One rank's communicators, of what they are made.
struct Making {
  const StageOptions& options;
  const std::string& probes;
  const std::shared_ptr<collective::Member>& member;
  const cuda::Device* device;
  Deadline deadline;
  std::shared_ptr<Communicator> zipped;  // null: not made
};

// Whether these GPUs reach each other's memory without the host's: alike on all ranks.
StatusOr<bool> AreLinked(const cuda::Device& device, const std::vector<DeviceName>& ranks) {
  const char* const disabled = std::getenv("NCCL_P2P_DISABLE");
  if (disabled != nullptr && std::string_view(disabled) == "1") return false;
  for (const DeviceName& one : ranks) {
    for (const DeviceName& other : ranks) {
      if (one == other || !one.cuda_index || !other.cuda_index) continue;
      bool reaches = false;
      LH_RETURN_IF_ERROR(
          device.Check(device.table().reaches(static_cast<int>(*one.cuda_index),
                                              static_cast<int>(*other.cuda_index), &reaches),
                       "asking which GPUs have direct links"));
      if (!reaches) return false;
    }
  }
  return true;
}

// NCCL rounds bf16 at every hop of a ring. Ranks with channels of their own need sums in fp32
// (CAAT-Net, Section 4); two ranks have them, because NCCL then adds once.
StatusOr<std::shared_ptr<Communicator>> OverNccl(const Making& making) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> nccl,
                      collective::nccl::Create(making.member, *making.device, {}, making.deadline));
  if (making.options.group.shared_channels == 1 || nccl->size() == 2) return nccl;
  return collective::exact::Create(std::move(nccl), making.device, {});
}

StatusOr<std::shared_ptr<Communicator>> Exact(const Making& making, GroupPath path) {
  if (making.device == nullptr) {
    return collective::host::Create(making.member, {}, making.deadline);
  }
  LH_ASSIGN_OR_RETURN(const bool linked, AreLinked(*making.device, making.options.ranks));
  const uint32_t ranks = making.member->place().size;
  const bool best_is_nccl = linked || ranks > collective::mapped::kMostRanks;
  if (path == GroupPath::kNccl || (path == GroupPath::kBest && best_is_nccl)) {
    return OverNccl(making);
  }
  if (making.member->place().rank == 0 && !linked) {
    LogInfo("the {} GPUs of a group have no direct links: they exchange through host memory",
            ranks);
  }
  return collective::mapped::Create(making.member, *making.device, making.deadline);
}

// Over `made->exact`; one for all that use it, so that its blobs are counted once.
StatusOr<std::shared_ptr<Communicator>> Zipped(Making* making, const RankCommunicators& made) {
  if (making->zipped == nullptr) {
    LH_ASSIGN_OR_RETURN(making->zipped, collective::zip::Create(made.exact, making->device, {}));
  }
  return making->zipped;
}

// Over `made->exact`, for one direction.
StatusOr<std::shared_ptr<Communicator>> For(const GroupCompression& compression, Making* making,
                                            RankCommunicators* made) {
  // Only the device needs to know how long its blobs are.
  const bool waits = made->exact->blobs() == nullptr;
  switch (compression.what) {
    case GroupCollective::kTaco:
      return collective::taco::Create(
          made->exact, making->device,
          {.format = compression.taco.format, .block = compression.taco.block});
    case GroupCollective::kZip:
      made->recordable = made->recordable && !waits;
      return Zipped(making, *made);
    case GroupCollective::kAuto: {
      const std::vector<BlockExchange> exchanges = BlockExchangesOf(making->options);
      // Passes with experts are never recorded: counts of their tokens go through the host.
      const bool recorded =
          !waits && making->options.graphs && !making->options.model.has_experts();
      if (exchanges.empty()) return made->exact;
      LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> zipped, Zipped(making, *made));
      LH_ASSIGN_OR_RETURN(
          std::shared_ptr<switcher::Switcher> chooser,
          switcher::Create(making->member, made->exact, {{"zip", std::move(zipped)}},
                           making->device, {.recorded = recorded, .cache_folder = making->probes},
                           making->deadline));
      const std::vector<switcher::Decision> decisions = chooser->decisions();
      const bool switches = Switches(decisions, exchanges);
      if (making->member->place().rank == 0) {
        LogInfo("collectives of {} ranks, {}: of {}, {}\n{}", made->exact->size(),
                chooser->origin(), Words(exchanges),
                switches ? "some are made by zip" : "none is made by zip",
                switcher::ToText(decisions));
      }
      if (!switches) return made->exact;
      made->recordable = made->recordable && recorded;
      return chooser;
    }
    case GroupCollective::kNone:
      break;
  }
  return made->exact;
}

}  // namespace

std::vector<BlockExchange> BlockExchangesOf(const StageOptions& options) {
  if (options.train.dtype != ComputeDtype::kBf16) return {};
  using collective::Op;
  const uint64_t tokens = uint64_t{options.train.microbatch_size} * options.model.context;
  constexpr uint64_t kElement = collective::BytesPerElement(collective::Dtype::kBf16);
  const uint64_t hidden = tokens * SharedChannels(options.model, options.group) * kElement;
  const bool experts = options.model.has_experts();
  std::vector<BlockExchange> exchanges;
  if (options.group.sequence) {
    exchanges = {{Op::kReduceScatter, hidden}, {Op::kAllGather, hidden}};
  } else {
    exchanges = {{Op::kAllReduce, hidden}};
    // Each rank routes its own tokens.
    if (experts) exchanges.push_back({Op::kAllGather, hidden});
  }
  if (experts && options.group.expert > 1) {
    // A rank's rows for all experts, as many as it gets where experts are equally busy.
    exchanges.push_back({Op::kAllToAll, tokens / options.group.tensor *
                                            options.model.experts_per_token * options.model.hidden *
                                            kElement});
  }
  return exchanges;
}

MakeCommunicators CommunicatorsFor(const StageOptions& options, const std::string& probes,
                                   GroupPath path) {
  return [options, probes, path](const std::shared_ptr<collective::Member>& member,
                                 const DeviceName& name,
                                 Deadline deadline) -> StatusOr<RankCommunicators> {
    std::optional<cuda::Device> device;
    RankCommunicators made;
    if (name.cuda_index) {
      LH_ASSIGN_OR_RETURN(device, cuda::Device::Open(*name.cuda_index));
    }
    Making making{options, probes, member, device ? &*device : nullptr, deadline, nullptr};
    LH_ASSIGN_OR_RETURN(made.exact, Exact(making, path));
    LH_ASSIGN_OR_RETURN(made.forward, For(options.group.forward, &making, &made));
    made.backward = made.forward;
    if (options.group.backward != options.group.forward) {
      LH_ASSIGN_OR_RETURN(made.backward, For(options.group.backward, &making, &made));
    }
    return made;
  };
}

}  // namespace longhaul::worker

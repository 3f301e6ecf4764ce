// zip and taco over the host's collectives, a switcher of the host's and zip, and sums in fp32 over
// collectives that round at every hop.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/conformance/collective/compressed.h"
#include "tests/conformance/collective/group.h"
#include "tests/conformance/collective/rounds_at_hops.h"
#include "transport/collective/engine/over.h"
#include "transport/collective/exact/factory.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/switcher/factory.h"

namespace longhaul::collective {
namespace {

// The host's collectives as a communicator has them that takes lengths from the device: words of
// lengths are read when a message goes, and nobody else learns them.
class WithBlobs final : public CommunicatorOver, public Blobs {
 public:
  explicit WithBlobs(std::shared_ptr<Communicator> below)
      : CommunicatorOver("blobs", std::move(below), absl::InfiniteDuration()) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below().Prepare(op, count, dtype);
  }

  Blobs* blobs() override { return this; }
  Status Exchange(Op op, const void* in, std::span<const SizedBlock> send, void* out,
                  std::span<const Block> receive, Queue queue) override {
    std::array<uint64_t, kMaxRanks> lengths{}, coming{};
    std::vector<Block> sends(size()), receives(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      uint64_t word = send[r].most;
      if (send[r].size != nullptr) {
        std::memcpy(&word, send[r].size, sizeof(word));
        word = std::min(send[r].most, send[r].base + word);
      }
      lengths[r] = word;
      sends[r] = {send[r].offset, word};
      sent_[static_cast<size_t>(op)] += word;
    }
    LH_RETURN_IF_ERROR(
        below().AllToAll(lengths.data(), coming.data(), sizeof(uint64_t), Dtype::kBytes, queue));
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (coming[r] > receive[r].count) return absl::OutOfRangeError("no room for a blob");
      receives[r] = {receive[r].offset, coming[r]};
    }
    return below().AllToAllV(in, sends, out, receives, Dtype::kBytes, queue);
  }
  using Blobs::sent_bytes;
  uint64_t sent_bytes(Op op) const override { return sent_[static_cast<size_t>(op)]; }

 private:
  std::array<uint64_t, std::size(kOps)> sent_{};
};

// Takes zip for all that zip may be taken for, and its ranks agree every few calls.
StatusOr<std::unique_ptr<Communicator>> MakeSwitcher(std::shared_ptr<Member> member, Memory&,
                                                     const RankSettings& settings,
                                                     Deadline deadline) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> native,
                      host::Create(member, {.call_limit = settings.call_limit}, deadline));
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> zipped,
                      zip::Create(native, nullptr, {.call_limit = settings.call_limit}));
  return switcher::Create(
      std::move(member), std::move(native), {{"zip", std::move(zipped)}}, nullptr,
      {.margin = -0.99, .agree_every = 3, .probe_limit = absl::ZeroDuration()}, deadline);
}

}  // namespace

const std::vector<Backend>& Backends() {
  static const auto* const backends = [] {
    auto* const rows = new std::vector<Backend>;
    for (const Compression& compression : Compressions(/*pieces=*/false)) {
      rows->push_back(
          {.name = compression.name + "_over_host",
           .max_ranks = 4,
           .rank_order = compression.sum_error == 0,
           .sum_error = compression.sum_error,
           .copy_error = compression.copy_error,
           .names_mismatches = false,
           .memory = [](uint32_t) { return NewHostMemory(); },
           .create = [compression](std::shared_ptr<Member> member, Memory&,
                                   const RankSettings& settings,
                                   Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
             LH_ASSIGN_OR_RETURN(
                 std::shared_ptr<Communicator> below,
                 host::Create(std::move(member), {.call_limit = settings.call_limit}, deadline));
             return compression.create(std::move(below), nullptr, settings.call_limit);
           }});
    }
    rows->push_back(
        {.name = "zip_over_blobs",
         .max_ranks = 4,
         .names_mismatches = false,
         .memory = [](uint32_t) { return NewHostMemory(); },
         .create = [](std::shared_ptr<Member> member, Memory&, const RankSettings& settings,
                      Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
           LH_ASSIGN_OR_RETURN(
               std::shared_ptr<Communicator> below,
               host::Create(std::move(member), {.call_limit = settings.call_limit}, deadline));
           return zip::Create(std::make_shared<WithBlobs>(std::move(below)), nullptr,
                              {.call_limit = settings.call_limit});
         }});
    rows->push_back(
        {.name = "exact_over_hops",
         .max_ranks = 4,
         .names_mismatches = false,
         .memory = [](uint32_t) { return NewHostMemory(); },
         .create = [](std::shared_ptr<Member> member, Memory&, const RankSettings& settings,
                      Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
           LH_ASSIGN_OR_RETURN(
               std::shared_ptr<Communicator> below,
               host::Create(std::move(member), {.call_limit = settings.call_limit}, deadline));
           return exact::Create(std::make_shared<RoundsAtHops>(std::move(below)), nullptr,
                                {.call_limit = settings.call_limit});
         }});
    rows->push_back({.name = "switcher_over_host",
                     .max_ranks = 4,
                     .names_mismatches = false,
                     .memory = [](uint32_t) { return NewHostMemory(); },
                     .create = MakeSwitcher});
    return rows;
  }();
  return *backends;
}

}  // namespace longhaul::collective

#include "tests/conformance/collective/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace longhaul::collective {
namespace {

class HostMemory : public Memory {
 public:
  StatusOr<void*> Allocate(size_t bytes) override {
    buffers_.emplace_back(std::max<size_t>(bytes, 1));
    return buffers_.back().span().data();
  }
  Status Upload(std::span<const std::byte> from, void* to) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  Status Download(const void* from, std::span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  }
  Queue queue() override { return {}; }

 private:
  std::vector<AlignedBuffer> buffers_;
};

template <class T>
T Must(StatusOr<T> made) {
  LH_CHECK(made.ok(), "{}", Message(made.status()));
  return *std::move(made);
}

}  // namespace

std::unique_ptr<Memory> NewHostMemory() {
  return std::make_unique<HostMemory>();
}

StatusOr<std::unique_ptr<Rank>> Rank::Join(const Backend& backend, const std::string& id,
                                           const Place& place, const RankSettings& settings) {
  const Deadline deadline = Deadline::After(kPatience);
  std::unique_ptr<Rank> rank(new Rank(backend));
  rank->settings_ = settings;
  LH_ASSIGN_OR_RETURN(rank->memory_, backend.memory(place.rank));
  LH_ASSIGN_OR_RETURN(rank->member_, Member::Join(id, place, deadline));
  LH_ASSIGN_OR_RETURN(rank->communicator_,
                      backend.create(rank->member_, *rank->memory_, settings, deadline));
  return rank;
}

void* Rank::Room(size_t bytes) {
  return Must(memory_->Allocate(bytes));
}

void* Rank::Put(std::span<const std::byte> bytes) {
  void* const data = Room(bytes.size());
  const Status done = memory_->Upload(bytes, data);
  LH_CHECK(done.ok(), "{}", Message(done));
  return data;
}

std::vector<std::byte> Rank::Get(const void* data, size_t bytes) {
  std::vector<std::byte> result(bytes);
  const Status done = memory_->Download(data, result);
  LH_CHECK(done.ok(), "{}", Message(done));
  return result;
}

Status Rank::Await(const Status& called) {
  if (!called.ok()) return called;
  return communicator_->Wait(queue(), Deadline::After(settings_.call_limit));
}

void Rank::Leave() {
  communicator_.reset();
  member_.reset();
}

const std::vector<NamedCall>& AllCalls() {
  constexpr Dtype kDtype = Dtype::kBf16;
  static const auto* const calls = new std::vector<NamedCall>{
      {"AllReduce",
       [](Rank& rank, void* in, void* out, uint64_t count) {
         return rank.communicator().AllReduce(in, out, rank.size() * count, kDtype, Reduction::kSum,
                                              rank.queue());
       }},
      {"ReduceScatter",
       [](Rank& rank, void* in, void* out, uint64_t count) {
         return rank.communicator().ReduceScatter(in, out, count, kDtype, Reduction::kSum,
                                                  rank.queue());
       }},
      {"AllGather",
       [](Rank& rank, void* in, void* out, uint64_t count) {
         return rank.communicator().AllGather(in, out, count, kDtype, rank.queue());
       }},
      {"AllToAll",
       [](Rank& rank, void* in, void* out, uint64_t count) {
         return rank.communicator().AllToAll(in, out, count, kDtype, rank.queue());
       }},
      {"Broadcast",
       [](Rank& rank, void* in, void*, uint64_t count) {
         return rank.communicator().Broadcast(in, rank.size() * count, kDtype, 0, rank.queue());
       }},
      {"Barrier", [](Rank& rank, void*, void*,
                     uint64_t) { return rank.communicator().Barrier(rank.queue()); }},
  };
  return *calls;
}

std::vector<NamedCall> CallsOf(const Backend& backend) {
  std::vector<NamedCall> calls;
  for (const NamedCall& call : AllCalls()) {
    const bool sums = call.name == "AllReduce" || call.name == "ReduceScatter";
    const Op op = call.name == "AllReduce" ? Op::kAllReduce : Op::kReduceScatter;
    if (!sums || backend.Has(op, Dtype::kBf16, Reduction::kSum)) calls.push_back(call);
  }
  return calls;
}

}  // namespace longhaul::collective

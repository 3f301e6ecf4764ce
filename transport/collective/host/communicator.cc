#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"
#include "transport/collective/core/call.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/host/mesh.h"
#include "transport/collective/host/reduce.h"

namespace longhaul::collective::host {
namespace {

using internal::Call;

// Up to so many bytes an all-reduce is one exchange, in which every rank gets all inputs: the same
// sums, and a wait less.
constexpr uint64_t kOneExchangeBytes = 8 << 10;

std::span<const std::byte> Bytes(const void* data, uint64_t at, uint64_t count) {
  return {static_cast<const std::byte*>(data) + at, count};
}
std::span<std::byte> Bytes(void* data, uint64_t at, uint64_t count) {
  return {static_cast<std::byte*>(data) + at, count};
}
void Copy(const void* from, void* to, uint64_t bytes) {
  if (from != to && bytes > 0) std::memmove(to, from, bytes);
}

class HostCommunicator : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<Member> member, std::unique_ptr<Mesh> mesh,
                   const Options& options)
      : member_(std::move(member)),
        mesh_(std::move(mesh)),
        call_limit_(options.call_limit),
        rank_(member_->place().rank),
        size_(member_->place().size),
        transfers_(size_),
        inputs_(size_) {}

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  int device() const override { return -1; }
  std::string Describe() const override { return "host"; }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue) override {
    LH_RETURN_IF_ERROR(Begin(
        {.op = Op::kAllReduce, .dtype = dtype, .reduction = reduction, .count = count}, in, out));
    const uint64_t element = BytesPerElement(dtype);
    if (size_ == 1) {
      Copy(in, out, count * element);
      return absl::OkStatus();
    }
    if (count * element <= kOneExchangeBytes) {
      return ExchangeAndReduce(
          in,
          [&](uint32_t) {
            return Part{0, count};
          },
          out);
    }
    const auto part_for = [&](uint32_t rank) { return PartOf(rank, count); };
    const Part mine = part_for(rank_);
    const auto my_out = Bytes(out, mine.begin * element, mine.count * element);
    LH_RETURN_IF_ERROR(ExchangeAndReduce(in, part_for, my_out.data()));
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const Part theirs = part_for(rank);
      transfers_[rank] = {my_out, Bytes(out, theirs.begin * element, theirs.count * element)};
    }
    return Exchange();
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue) override {
    LH_RETURN_IF_ERROR(
        Begin({.op = Op::kReduceScatter, .dtype = dtype, .reduction = reduction, .count = count},
              in, out));
    if (size_ == 1) {
      Copy(in, out, count * BytesPerElement(dtype));
      return absl::OkStatus();
    }
    return ExchangeAndReduce(
        in,
        [&](uint32_t rank) {
          return Part{rank * count, count};
        },
        out);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue) override {
    LH_RETURN_IF_ERROR(Begin({.op = Op::kAllGather, .dtype = dtype, .count = count}, in, out));
    const uint64_t bytes = count * BytesPerElement(dtype);
    for (uint32_t rank = 0; rank < size_; ++rank) {
      transfers_[rank] = {Bytes(in, 0, bytes), Bytes(out, rank * bytes, bytes)};
    }
    Copy(in, transfers_[rank_].receive.data(), bytes);
    return Exchange();
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue) override {
    LH_RETURN_IF_ERROR(internal::CheckAllToAll(rank_, size_, in, send, out, receive, dtype));
    LH_RETURN_IF_ERROR(Begin({.op = Op::kAllToAll, .dtype = dtype}));
    const uint64_t element = BytesPerElement(dtype);
    for (uint32_t rank = 0; rank < size_; ++rank) {
      // An offset of an empty block may lie anywhere.
      if (send[rank].count > 0) {
        transfers_[rank].send = Bytes(in, send[rank].offset * element, send[rank].count * element);
      }
      if (receive[rank].count > 0) {
        transfers_[rank].receive =
            Bytes(out, receive[rank].offset * element, receive[rank].count * element);
      }
    }
    const Transfer& own = transfers_[rank_];
    Copy(own.send.data(), own.receive.data(), own.send.size());
    return Exchange();
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue) override {
    LH_RETURN_IF_ERROR(
        Begin({.op = Op::kBroadcast, .dtype = dtype, .root = root, .count = count}, data, data));
    const auto all = Bytes(data, 0, count * BytesPerElement(dtype));
    if (rank_ == root) {
      for (Transfer& transfer : transfers_) transfer.send = all;
    } else {
      transfers_[root].receive = all;
    }
    return Exchange();
  }
  Status Barrier(Queue) override {
    LH_RETURN_IF_ERROR(Begin({.op = Op::kBarrier}));
    return Exchange();
  }

  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(internal::Check({.op = op, .dtype = dtype, .count = count}, size_));
    if (op != Op::kAllReduce && op != Op::kReduceScatter) return absl::OkStatus();
    const uint64_t element = BytesPerElement(dtype);
    const uint64_t small = std::min(count * element, kOneExchangeBytes);
    Scratch(std::max(PartOf(0, count).count * element, small));
    return absl::OkStatus();
  }
  // Every call has its result when it returns.
  Status Wait(Queue, Deadline) override { return status(); }
  void Abort(const Status& reason) override { member_->End(reason); }
  Status status() const override { return member_->status(); }
  Stats stats() const override { return stats_; }

 private:
  // The elements of a tensor that one rank reduces.
  struct Part {
    uint64_t begin = 0, count = 0;
  };
  Part PartOf(uint32_t rank, uint64_t count) const {
    const uint64_t each = (count + size_ - 1) / size_;
    const uint64_t begin = std::min(count, rank * each);
    return {begin, std::min(each, count - begin)};
  }

  Status Begin(const Call& call, const void* in = nullptr, const void* out = nullptr) {
    LH_RETURN_IF_ERROR(internal::CheckArguments(call, size_, in, out));
    LH_RETURN_IF_ERROR(member_->status());
    header_ = {.call = call, .number = ++stats_.calls};
    deadline_ = Deadline::After(call_limit_);
    std::ranges::fill(transfers_, Transfer());
    return absl::OkStatus();
  }
  // What `transfers_` says, as the next step of the call.
  Status Exchange() {
    LH_RETURN_IF_ERROR(mesh_->Exchange(header_, transfers_, deadline_));
    ++header_.step;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      stats_.tensor_bytes += transfers_[rank].send.size();
      stats_.sent_bytes += transfers_[rank].send.size();
    }
    return absl::OkStatus();
  }
  // `part_for` rank r of `in` goes to rank r; this rank's are reduced into `out`.
  template <class PartFor>
  Status ExchangeAndReduce(const void* in, PartFor part_for, void* out) {
    const Call& call = header_.call;
    const uint64_t element = BytesPerElement(call.dtype);
    const Part mine = part_for(rank_);
    std::byte* scratch = Scratch(mine.count * element);
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        inputs_[rank] = Bytes(in, mine.begin * element, 0).data();
        continue;
      }
      const Part theirs = part_for(rank);
      transfers_[rank] = {Bytes(in, theirs.begin * element, theirs.count * element),
                          Bytes(scratch, 0, mine.count * element)};
      inputs_[rank] = scratch;
      scratch += mine.count * element;
    }
    LH_RETURN_IF_ERROR(Exchange());
    Reduce(inputs_, out, mine.count, call.dtype, call.reduction);
    return absl::OkStatus();
  }
  // Room for what other ranks send of `bytes` each.
  std::byte* Scratch(uint64_t bytes) {
    scratch_.EnsureSize((size_ - 1) * bytes);
    return scratch_.span().data();
  }

  const std::shared_ptr<Member> member_;
  const std::unique_ptr<Mesh> mesh_;
  const absl::Duration call_limit_;
  const uint32_t rank_, size_;

  Header header_;  // of the running call
  Deadline deadline_ = Deadline::After(absl::ZeroDuration());
  std::vector<Transfer> transfers_;
  std::vector<const void*> inputs_;
  AlignedBuffer scratch_;
  Stats stats_;
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const Options& options, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, Mesh::Connect(member, deadline));
  return std::make_unique<HostCommunicator>(std::move(member), std::move(mesh), options);
}

}  // namespace longhaul::collective::host

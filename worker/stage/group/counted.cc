#include "worker/stage/group/counted.h"

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {
namespace {

using collective::Block;
using collective::Communicator;
using collective::Dtype;
using collective::Op;
using collective::Queue;
using collective::Reduction;

class CountedCommunicator final : public Communicator {
 public:
  CountedCommunicator(std::shared_ptr<Communicator> below, std::shared_ptr<RankUse> use)
      : below_(std::move(below)), use_(std::move(use)), on_host_(below_->device() < 0) {}

  uint32_t rank() const override { return below_->rank(); }
  uint32_t size() const override { return below_->size(); }
  int device() const override { return below_->device(); }
  std::string Describe() const override { return below_->Describe(); }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    return Count(Op::kAllReduce,
                 [&] { return below_->AllReduce(in, out, count, dtype, reduction, queue); });
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    return Count(Op::kReduceScatter,
                 [&] { return below_->ReduceScatter(in, out, count, dtype, reduction, queue); });
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Count(Op::kAllGather, [&] { return below_->AllGather(in, out, count, dtype, queue); });
  }
  Status AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Count(Op::kAllToAll, [&] { return below_->AllToAll(in, out, count, dtype, queue); });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Count(Op::kAllToAll,
                 [&] { return below_->AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    return Count(Op::kBroadcast,
                 [&] { return below_->Broadcast(data, count, dtype, root, queue); });
  }
  Status Barrier(Queue queue) override {
    return Count(Op::kBarrier, [&] { return below_->Barrier(queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below_->Prepare(op, count, dtype);
  }
  Status Wait(Queue queue, Deadline deadline) override { return below_->Wait(queue, deadline); }
  Status fault() override { return below_->fault(); }
  void Abort(const Status& reason) override { below_->Abort(reason); }
  Status status() const override { return below_->status(); }
  collective::Stats stats() const override { return below_->stats(); }

 private:
  template <class Call>
  Status Count(Op op, const Call& call) {
    const uint64_t sent_before = below_->stats().sent_bytes;
    const MonoTime began = Now();
    Status status = call();
    if (on_host_) use_->seconds += absl::ToDoubleSeconds(Now() - began);
    use_->sent_bytes[static_cast<size_t>(op)] += below_->stats().sent_bytes - sent_before;
    return status;
  }

  const std::shared_ptr<Communicator> below_;
  const std::shared_ptr<RankUse> use_;
  const bool on_host_;
};

}  // namespace

RankUse& RankUse::operator+=(const RankUse& more) {
  for (size_t op = 0; op < sent_bytes.size(); ++op) sent_bytes[op] += more.sent_bytes[op];
  seconds += more.seconds;
  return *this;
}

RankUse RankUse::operator-(const RankUse& before) const {
  RankUse difference = *this;
  for (size_t op = 0; op < sent_bytes.size(); ++op) {
    difference.sent_bytes[op] -= before.sent_bytes[op];
  }
  difference.seconds -= before.seconds;
  return difference;
}

std::shared_ptr<Communicator> Counted(std::shared_ptr<Communicator> below,
                                      std::shared_ptr<RankUse> use) {
  return std::make_shared<CountedCommunicator>(std::move(below), std::move(use));
}

}  // namespace longhaul::worker

#include "tests/support/one_memory.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/clock.h"
#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"

namespace longhaul::collective::testing {
namespace {

// How often a waiting rank looks whether the group has ended.
constexpr std::chrono::milliseconds kLook(20);

class OneMemoryCommunicator final : public Communicator {
 public:
  OneMemoryCommunicator(std::shared_ptr<OneMemory> meeting, std::shared_ptr<Member> member,
                        std::unique_ptr<Engine> engine)
      : meeting_(std::move(meeting)), member_(std::move(member)), engine_(std::move(engine)) {}

  uint32_t rank() const override { return member_->place().rank; }
  uint32_t size() const override { return member_->place().size; }
  int device() const override {
    return engine_->device() == nullptr ? -1 : engine_->device()->index();
  }
  std::string Describe() const override { return "one memory"; }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    const uint64_t bytes = count * BytesPerElement(dtype);
    // The others read `in` until all have met again.
    const bool in_place = in == out;
    if (in_place) LH_RETURN_IF_ERROR(Reserve(*engine_, bytes, &sums_));
    void* const sums = in_place ? sums_.data() : out;
    LH_RETURN_IF_ERROR(Meet({.in = in}, queue));
    LH_RETURN_IF_ERROR(Reduce(0, count, dtype, reduction, sums, queue));
    LH_RETURN_IF_ERROR(Part(queue));
    CountBytes(2 * bytes * (size() - 1) / size());
    return in_place ? engine_->Copy(out, sums, bytes, queue) : absl::OkStatus();
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    LH_RETURN_IF_ERROR(Meet({.in = in}, queue));
    LH_RETURN_IF_ERROR(Reduce(rank() * count, count, dtype, reduction, out, queue));
    CountBytes((size() - 1) * count * BytesPerElement(dtype));
    return Part(queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kAllGather, .dtype = dtype, .count = count}, size(), in, out));
    const uint64_t bytes = count * BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Meet({.in = in}, queue));
    for (uint32_t r = 0; r < size(); ++r) {
      std::byte* const to = static_cast<std::byte*>(out) + r * bytes;
      if (to == meeting_->call(r).in) continue;
      LH_RETURN_IF_ERROR(engine_->Copy(to, meeting_->call(r).in, bytes, queue));
    }
    CountBytes((size() - 1) * bytes);
    return Part(queue);
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckAllToAll(rank(), size(), in, send, out, receive, dtype));
    const uint64_t element = BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Meet({.in = in, .send = send}, queue));
    for (uint32_t r = 0; r < size(); ++r) {
      const OneMemory::Call& from = meeting_->call(r);
      const Block& block = from.send[rank()];
      if (block.count != receive[r].count) {
        const Status unlike = InvalidArgument("rank {} sends {} elements, expected {}", r,
                                              block.count, receive[r].count);
        member_->End(unlike);
        return unlike;
      }
      if (block.count == 0) continue;
      LH_RETURN_IF_ERROR(
          engine_->Copy(static_cast<std::byte*>(out) + receive[r].offset * element,
                        static_cast<const std::byte*>(from.in) + block.offset * element,
                        block.count * element, queue));
      if (r != rank()) CountBytes(0, send[r].count * element);
    }
    CountBytes(0);
    return Part(queue);
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kBroadcast, .dtype = dtype, .root = root, .count = count}, size(), data, data));
    const uint64_t bytes = count * BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Meet({.in = data}, queue));
    if (rank() != root) {
      LH_RETURN_IF_ERROR(engine_->Copy(data, meeting_->call(root).in, bytes, queue));
    }
    CountBytes(rank() == root ? bytes : 0);
    return Part(queue);
  }
  Status Barrier(Queue queue) override {
    LH_RETURN_IF_ERROR(Meet({}, queue));
    CountBytes(0);
    return Part(queue);
  }

  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(internal::Check({.op = op, .dtype = dtype, .count = count}, size()));
    return Reserve(*engine_, count * BytesPerElement(dtype), &sums_);
  }
  Status Wait(Queue queue, Deadline deadline) override {
    LH_RETURN_IF_ERROR(status());
    if (engine_->device() == nullptr) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(*engine_->device()));
    LH_RETURN_IF_ERROR(event.Record(Borrow(queue)));
    return event.Await(deadline);
  }
  void Abort(const Status& reason) override { member_->End(reason); }
  Status status() const override { return member_->status(); }
  Stats stats() const override { return stats_; }

 private:
  cuda::Stream Borrow(Queue queue) const {
    return cuda::Stream::Borrow(*engine_->device(), queue.stream);
  }
  void CountBytes(uint64_t bytes) { CountBytes(1, bytes); }
  void CountBytes(uint64_t calls, uint64_t bytes) {
    stats_.calls += calls;
    stats_.tensor_bytes += bytes;
    stats_.sent_bytes += bytes;
  }
  // After Meet the queue may read the others' inputs; after Part it may write its own again.
  Status Meet(const OneMemory::Call& call, Queue queue) {
    meeting_->call(rank()) = call;
    return MeetAfter(&OneMemory::Events::ready, queue);
  }
  Status Part(Queue queue) { return MeetAfter(&OneMemory::Events::done, queue); }
  Status MeetAfter(cuda::Event OneMemory::Events::*event, Queue queue) {
    OneMemory::Events* const own = meeting_->events(rank());
    if (own == nullptr) return meeting_->Meet(*member_);
    cuda::Stream stream = Borrow(queue);
    LH_RETURN_IF_ERROR((own->*event).Record(stream));
    LH_RETURN_IF_ERROR(meeting_->Meet(*member_));
    for (uint32_t r = 0; r < size(); ++r) {
      if (r != rank()) LH_RETURN_IF_ERROR(stream.WaitFor(meeting_->events(r)->*event));
    }
    return absl::OkStatus();
  }
  Status Reduce(uint64_t first, uint64_t count, Dtype dtype, Reduction reduction, void* out,
                Queue queue) {
    std::vector<const void*> parts;
    for (uint32_t r = 0; r < size(); ++r) {
      parts.push_back(static_cast<const std::byte*>(meeting_->call(r).in) +
                      first * BytesPerElement(dtype));
    }
    if (count == 0) return absl::OkStatus();
    return reduction == Reduction::kSum ? engine_->Sum(parts, count, dtype, out, queue)
                                        : engine_->Largest(parts, count, dtype, out, queue);
  }

  const std::shared_ptr<OneMemory> meeting_;
  const std::shared_ptr<Member> member_;
  const std::unique_ptr<Engine> engine_;
  OwnedMemory sums_;
  Stats stats_;
};

}  // namespace

OneMemory::OneMemory(uint32_t ranks, absl::Duration call_limit)
    : call_limit_(call_limit), calls_(ranks), events_(ranks) {}

StatusOr<std::unique_ptr<Communicator>> OneMemory::Join(std::shared_ptr<Member> member,
                                                        const cuda::Device* device) {
  if (member->place().size != calls_.size()) {
    return InvalidArgument("expected a group of {} ranks, got one of {}", calls_.size(),
                           member->place().size);
  }
  std::unique_ptr<Engine> engine;
  if (device == nullptr) {
    engine = Engine::ForHost();
  } else {
    LH_ASSIGN_OR_RETURN(engine, Engine::ForDevice(*device));
    LH_ASSIGN_OR_RETURN(cuda::Event ready, cuda::Event::Create(*device));
    LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(*device));
    events_[member->place().rank] =
        std::make_unique<Events>(Events{std::move(ready), std::move(done)});
  }
  return std::make_unique<OneMemoryCommunicator>(shared_from_this(), std::move(member),
                                                 std::move(engine));
}

Status OneMemory::Meet(Member& member) {
  LH_RETURN_IF_ERROR(member.status());
  std::unique_lock lock(mutex_);
  const uint64_t meeting = meetings_;
  if (++here_ == calls_.size()) {
    here_ = 0;
    ++meetings_;
    came_.notify_all();
    return absl::OkStatus();
  }
  const Deadline deadline = Deadline::After(call_limit_);
  while (meetings_ == meeting) {
    came_.wait_for(lock, kLook);
    if (meetings_ != meeting) break;
    LH_RETURN_IF_ERROR(member.status());
    if (!deadline.Expired()) continue;
    lock.unlock();
    const Status late = absl::DeadlineExceededError(
        "another rank did not make the same call within the limit of a call");
    member.End(late);
    return late;
  }
  return absl::OkStatus();
}

}  // namespace longhaul::collective::testing

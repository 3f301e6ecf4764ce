// A call that only its end from another thread can end.
#include "transport/collective/engine/watchdog.h"

#include <gmock/gmock.h>

#include "base/notification.h"
#include "transport/collective/engine/over.h"

namespace longhaul::collective {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// On a device, as far as it says; a call waits until the group ends.
class Held final : public Communicator {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t size() const override { return 2; }
  int device() const override { return 0; }
  std::string Describe() const override { return "held"; }
  Status AllReduce(const void*, void*, uint64_t, Dtype, Reduction, Queue) override {
    ended_.WaitFor(kPatience);
    return status();
  }
  Status ReduceScatter(const void*, void*, uint64_t, Dtype, Reduction, Queue) override {
    return status();
  }
  Status AllGather(const void*, void*, uint64_t, Dtype, Queue) override { return status(); }
  Status AllToAllV(const void*, std::span<const Block>, void*, std::span<const Block>, Dtype,
                   Queue) override {
    return status();
  }
  Status Broadcast(void*, uint64_t, Dtype, uint32_t, Queue) override { return status(); }
  Status Barrier(Queue) override { return status(); }
  Status Prepare(Op, uint64_t, Dtype) override { return absl::OkStatus(); }
  Status Wait(Queue, Deadline) override { return status(); }
  void Abort(const Status& reason) override {
    why_ = reason;
    ended_.Notify();
  }
  Status status() const override {
    return ended_.WaitFor(absl::ZeroDuration()) ? Status(absl::StatusCode::kAborted, why_.message())
                                                : absl::OkStatus();
  }
  Stats stats() const override { return {}; }

 private:
  Status why_;
  mutable Notification ended_;
};

class Compressed final : public CommunicatorOver {
 public:
  Compressed(std::shared_ptr<Communicator> below, absl::Duration limit)
      : CommunicatorOver("compressed", std::move(below), limit) {}
  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    return Limited([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
  }
  Status ReduceScatter(const void*, void*, uint64_t, Dtype, Reduction, Queue) override {
    return Limited([] { return absl::OkStatus(); });
  }
  Status AllGather(const void*, void*, uint64_t, Dtype, Queue) override { return status(); }
  Status AllToAllV(const void*, std::span<const Block>, void*, std::span<const Block>, Dtype,
                   Queue) override {
    return status();
  }
  Status Prepare(Op, uint64_t, Dtype) override { return absl::OkStatus(); }
};

TEST(Watchdog, ACallThatIsHeldUpEndsTheGroup) {
  Compressed communicator(std::make_shared<Held>(), absl::Milliseconds(10));
  const Status end = communicator.AllReduce(nullptr, nullptr, 1, Dtype::kBf16, Reduction::kSum, {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(end)) << end;
  EXPECT_THAT(std::string(Message(end)), ::testing::HasSubstr("did not come"));
  EXPECT_TRUE(absl::IsAborted(communicator.status()));
}

TEST(Watchdog, ACallThatEndsIsLeftAlone) {
  Compressed communicator(std::make_shared<Held>(), absl::Minutes(5));
  for (int k = 0; k < 1000; ++k) {
    EXPECT_TRUE(
        communicator.ReduceScatter(nullptr, nullptr, 1, Dtype::kBf16, Reduction::kSum, {}).ok());
  }
  EXPECT_TRUE(communicator.status().ok());
}

TEST(Watchdog, SaysWhetherItExpired) {
  Notification expired;
  Watchdog watchdog([&] { expired.Notify(); });
  watchdog.Arm(absl::Minutes(5));
  EXPECT_FALSE(watchdog.Disarm());
  watchdog.Arm(absl::ZeroDuration());
  expired.WaitFor(kPatience);
  EXPECT_TRUE(watchdog.Disarm());
  EXPECT_FALSE(watchdog.Disarm());
}

}  // namespace
}  // namespace longhaul::collective

// A whole end of a link, and a peer that does what it likes: it dials, greets, proves itself or
// lies, sends frames of every kind in any order, repeats what it said, falls silent, hangs up and
// comes back. Nobody opens a link without its secret. Frames that count themselves arrive in order.
// OnClosed runs once. At the end nothing is left.
//
// The input: u8 setting, then acts of 4 bytes: u8 act, u8 connection, u8 a, u8 b.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/fuzz/target.h"
#include "transport/p2p/core/hub.h"
#include "transport/p2p/fuzz/hostile_end.h"

namespace longhaul::transport::internal {
namespace {

// What this side's caller sees of the link.
class MachineHandler : public LinkHandler {
 public:
  void OnFrame(Lane lane, std::span<const std::byte> payload) override {
    ++frames;
    if (closed) std::abort();
    const std::optional<uint64_t> number = NumberOf(payload);
    if (!number) return;
    uint64_t& last = last_[static_cast<size_t>(lane)];
    if (*number <= last) std::abort();  // twice, or out of order
    last = *number;
  }
  void OnSuspect(absl::Duration) override { MustBeOpen(); }
  void OnHealthy() override { MustBeOpen(); }
  void OnLost(const Status&) override { MustBeOpen(); }
  void OnHealed(absl::Duration, uint64_t) override { MustBeOpen(); }
  void OnClosed(const Status& reason) override {
    if (closed || reason.ok()) std::abort();
    closed = true;
  }
  bool closed = false;
  size_t frames = 0;

 private:
  void MustBeOpen() const {
    if (closed) std::abort();
  }
  std::array<uint64_t, kLanes> last_{};
};

class Machine {
 public:
  explicit Machine(uint8_t setting)
      : setting_(setting),
        peer_({.listens = !dials(), .sealed = sealed(), .knows = knows(), .key = key_}) {
    auto backend = std::make_unique<HostileBackend>();
    backend_ = backend.get();
    hub_ = std::make_shared<Hub>(loop_->loop(), std::move(backend));
    if (!hub_->Start().ok()) std::abort();
    LinkOptions options{.peer_timeout = absl::Seconds(2)};
    options.credits = 4;
    options.sealed = sealed();
    const Deadline deadline = Deadline::At(loop_->loop()->now() + absl::Seconds(5));
    const auto opened = [this](StatusOr<std::shared_ptr<LinkCore>> link) {
      ++opened_;
      if (link.ok()) link_ = *link;
      if (link.ok() && !knows()) std::abort();
    };
    if (dials()) {
      hub_->Dial({"hostile:1"}, key_, kHostileSecret, handler_, options, deadline, opened);
    } else {
      hub_->Expect(key_, kHostileSecret, handler_, options, deadline, opened);
    }
    Pass(absl::ZeroDuration());
  }

  void Act(uint8_t act, uint8_t which, uint8_t a, uint8_t b) {
    constexpr uint8_t kPass = 13, kSend = 14, kClose = 15;
    switch (act % 16) {
      case kPass:
        Pass(absl::Milliseconds(a % 2 == 0 ? a : 20 * a));
        return;
      case kSend:
        if (link_) Send(a % 2 == 0 ? Lane::kBulk : Lane::kControl, b);
        break;
      case kClose:
        if (link_ && a < 32) {
          link_->Close(Deadline::At(loop_->loop()->now() + absl::Milliseconds(b)), b % 2 == 0);
        }
        break;
      default:
        peer_.Act(*backend_, act % 16, which, a, b);
    }
    Pass(absl::ZeroDuration());
  }

  // Returns whether the link was open.
  bool End() {
    const bool was_open = link_ != nullptr;
    bool down = false;
    hub_->Shutdown([&] { down = true; });
    Pass(absl::Seconds(60));
    if (!down || opened_ != 1 || sends_ != 0 || (was_open && !handler_->closed)) std::abort();
    if (!was_open && handler_->frames > 0) std::abort();
    return was_open;
  }

 private:
  bool dials() const { return (setting_ & 1) != 0; }
  bool sealed() const { return (setting_ & 2) != 0; }
  bool knows() const { return (setting_ & 4) == 0; }

  void Pass(absl::Duration time) {
    const MonoTime limit = loop_->loop()->now() + time;
    while (loop_->Step(limit)) {
    }
  }

  void Send(Lane lane, uint8_t size) {
    constexpr size_t kMostWaiting = 64;
    if (sends_ >= kMostWaiting) return;
    ++sends_;
    const auto bytes = std::make_shared<std::vector<std::byte>>(size, std::byte{7});
    link_->Send(lane, {.header = *bytes, .body = {}}, [this, bytes](const Status&) { --sends_; });
  }

  const uint8_t setting_;
  const LinkKey key_{RunId("fuzz-000000"), Stamp(1), EdgeId(0)};
  const std::unique_ptr<ManualLoop> loop_ = *ManualLoop::Create(MonoTime() + absl::Hours(1));
  const std::shared_ptr<MachineHandler> handler_ = std::make_shared<MachineHandler>();
  HostilePeer peer_;
  HostileBackend* backend_ = nullptr;  // the hub's
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<LinkCore> link_;
  int opened_ = 0;
  size_t sends_ = 0;
};

}  // namespace
}  // namespace longhaul::transport::internal

LH_FUZZ_TARGET(link_machine) {
  if (size == 0) return false;
  longhaul::transport::internal::Machine machine(data[0]);
  constexpr size_t kMostActs = 300;
  for (size_t i = 1; i + 3 < size && i < 4 * kMostActs; i += 4) {
    machine.Act(data[i], data[i + 1], data[i + 2], data[i + 3]);
  }
  return machine.End();
}

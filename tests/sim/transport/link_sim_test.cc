// Links under random faults: two transports on one loop with a clock of its own, random traffic
// both ways, connections that break, fall silent and come back at random moments. Whatever happens,
// every frame arrives once and in order, every `done` runs once, and says what is true.
//
// A failing seed is printed; LONGHAUL_SEED=n runs it alone.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/link_faults.h"
#include "transport/p2p/core/hub.h"
#include "transport/p2p/loopback/backend.h"

namespace longhaul::transport::internal {
namespace {

constexpr uint64_t kSeeds = 800;
constexpr absl::Duration kPeerTimeout = absl::Seconds(10);
constexpr absl::Duration kLimit = absl::Minutes(5);
constexpr size_t kSides = 2;  // 0 dials
constexpr std::byte kUsed{0xEE};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t limit) { return engine_() % limit; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool Chance(uint64_t percent) { return Below(100) < percent; }
  absl::Duration Up(absl::Duration most) {
    return absl::Microseconds(Below(1 + absl::ToInt64Microseconds(most)));
  }

 private:
  std::mt19937_64 engine_;
};

std::byte PatternAt(uint64_t number, size_t i) {
  return static_cast<std::byte>((number * 2654435761u + i * 40503u) >> 7);
}

// One side's caller: what it sends, what it hears.
class Side : public LinkHandler {
 public:
  struct Sent {
    std::vector<std::byte> bytes;
    bool finished = false, ok = false;
  };

  void OnFrame(Lane lane, std::span<const std::byte> payload) override {
    EXPECT_TRUE(closed.ok()) << "a frame after OnClosed";
    auto& got = received[static_cast<size_t>(lane)];
    ASSERT_GE(payload.size(), sizeof(uint64_t));
    uint64_t number;
    std::memcpy(&number, payload.data(), sizeof(number));
    ASSERT_EQ(number, got) << "on lane " << static_cast<int>(lane);
    ++got;
    for (size_t i = sizeof(number); i < payload.size(); ++i) {
      ASSERT_EQ(payload[i], PatternAt(number, i));
    }
  }
  void OnSuspect(absl::Duration) override { Say("suspect"); }
  void OnHealthy() override { Say("healthy"); }
  void OnLost(const Status& why) override {
    EXPECT_FALSE(why.ok());
    Say("lost");
  }
  void OnHealed(absl::Duration away, uint64_t) override {
    EXPECT_GE(away, absl::ZeroDuration());
    EXPECT_LT(away, kPeerTimeout + absl::Seconds(1));
    Say("healed");
  }
  void OnClosed(const Status& reason) override {
    EXPECT_TRUE(closed.ok()) << "OnClosed twice";
    EXPECT_EQ(unfinished, 0u) << "OnClosed before the last done";
    closed = reason;
  }

  void Send(Random& random) {
    const Lane lane = random.Chance(25) ? Lane::kControl : Lane::kBulk;
    auto& list = sent[static_cast<size_t>(lane)];
    const uint64_t number = list.size();
    list.push_back(std::make_unique<Sent>());
    Sent* const one = list.back().get();
    one->bytes.resize(sizeof(number) + random.Below(200));
    std::memcpy(one->bytes.data(), &number, sizeof(number));
    for (size_t i = sizeof(number); i < one->bytes.size(); ++i)
      one->bytes[i] = PatternAt(number, i);
    const std::span<const std::byte> bytes(one->bytes);
    const size_t cut = random.Below(bytes.size());
    ++unfinished;
    link->Send(lane, {.header = bytes.first(cut), .body = bytes.subspan(cut)},
               [this, one](const Status& status) {
                 EXPECT_FALSE(one->finished) << "a done twice";
                 one->finished = true;
                 one->ok = status.ok();
                 --unfinished;
                 std::ranges::fill(one->bytes, kUsed);  // nobody may read it any more
               });
  }

  uint64_t SentOn(size_t lane) const { return sent[lane].size(); }

  std::shared_ptr<LinkCore> link;
  std::array<std::vector<std::unique_ptr<Sent>>, kLanes> sent;
  std::array<uint64_t, kLanes> received{};
  size_t unfinished = 0;
  Status closed;
  std::map<std::string, int> said;

 private:
  void Say(const std::string& what) {
    EXPECT_TRUE(closed.ok()) << what << " after OnClosed";
    ++said[what];
  }
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  void Run() {
    Open();
    if (::testing::Test::HasFatalFailure()) return;
    const bool fatal_cut = random_.Chance(10);
    const bool early_close = !fatal_cut && random_.Chance(30);
    PlanTraffic();
    PlanFaults();
    closer_ = random_.Below(kSides);
    if (fatal_cut) {
      EndByCut();
    } else if (early_close) {
      EndByClose(/*when_idle=*/false);
    } else {
      EndByClose(/*when_idle=*/true);
    }
    CheckDones();
    Shutdown();
  }

  void AddTo(std::map<std::string, int>* seen) const {
    for (const auto& side : sides_) {
      for (const auto& [what, count] : side->said) (*seen)[what] += count;
      const LinkStats stats = side->link->stats();
      (*seen)["resent"] += static_cast<int>(stats.frames_resent);
      (*seen)["repeated"] += static_cast<int>(stats.frames_repeated);
      (*seen)["reconnects"] += static_cast<int>(stats.reconnects);
    }
  }

 private:
  void Open() {
    LinkOptions options{.peer_timeout = kPeerTimeout};
    options.credits = static_cast<uint32_t>(random_.Between(1, 8));
    std::array<std::string, kSides> addresses;
    const absl::Duration latency = random_.Up(absl::Milliseconds(80));
    const bool jitter = random_.Chance(50);
    for (size_t s = 0; s < kSides; ++s) {
      hubs_[s] = std::make_shared<Hub>(loop_->loop(), faults_[s].Around(loopback::NewBackend({})));
      const auto address = hubs_[s]->Start();
      ASSERT_TRUE(address.ok()) << address.status();
      addresses[s] = *address;
      faults_[s].SetDelay(
          [this, latency, jitter] { return jitter ? random_.Up(latency) : latency; });
    }
    const Deadline deadline = Deadline::At(loop_->loop()->now() + absl::Seconds(30));
    const auto opened = [this](size_t s) {
      return [this, s](StatusOr<std::shared_ptr<LinkCore>> link) {
        ASSERT_TRUE(link.ok()) << link.status();
        sides_[s]->link = *link;
      };
    };
    hubs_[1]->Expect(key_, "secret", sides_[1], options, deadline, opened(1));
    hubs_[0]->Dial({addresses[1]}, key_, "secret", sides_[0], options, deadline, opened(0));
    listener_address_ = addresses[1];
    RunUntil([&] { return sides_[0]->link && sides_[1]->link; });
    ASSERT_TRUE(sides_[0]->link && sides_[1]->link);
  }

  void At(absl::Duration in, std::function<void()> task) {
    loop_->loop()->AddTimer(loop_->loop()->now() + in, std::move(task));
  }

  void PlanTraffic() {
    for (size_t s = 0; s < kSides; ++s) {
      absl::Duration time;
      const uint64_t bursts = random_.Between(1, 30);
      for (uint64_t b = 0; b < bursts; ++b) {
        time += random_.Up(absl::Seconds(1));
        ++bursts_left_;
        At(time, [this, s, frames = random_.Between(1, 20)] {
          --bursts_left_;
          for (uint64_t i = 0; i < frames; ++i) sides_[s]->Send(random_);
        });
      }
    }
  }

  // Never more than 7 s without a working network, so that no link may give up.
  void PlanFaults() {
    absl::Duration time;
    const uint64_t count = random_.Between(1, 15);
    for (uint64_t i = 0; i < count; ++i) {
      time += random_.Up(absl::Seconds(2));
      const Faults& faults = faults_[random_.Below(kSides)];
      switch (random_.Below(6)) {
        case 0:
          At(time, [&faults] { faults.Reset(); });
          break;
        case 1:
          At(time, [&faults] { faults.ResetFirst(); });
          break;
        case 2:
          At(time, [&faults] { faults.CutForGood(); });
          time += absl::Seconds(3);  // room to notice and to come back
          break;
        case 3:
          At(time, [&faults] { faults.CutFirstForGood(); });
          break;
        case 4:
          MoveListener(time);
          time += absl::Seconds(7);
          break;
        default:
          At(time, [&faults] { faults.Cut(); });
          time += random_.Up(absl::Seconds(4));
          At(time, [&faults] { faults.Restore(); });
          time += absl::Seconds(3);
      }
    }
  }

  // Its new address is known a while after it has lost the old one.
  void MoveListener(absl::Duration time) {
    const std::string from = listener_address_;
    listener_address_ = fmt::format("moved at {}", absl::ToInt64Microseconds(time));
    At(time, [this, from, to = listener_address_] { faults_[0].Move(from, to); });
    At(time + random_.Up(absl::Seconds(4)),
       [this, to = listener_address_] { hubs_[0]->Readdress(key_, {to}); });
  }

  bool AllThere() const {
    if (bursts_left_ != 0) return false;
    for (size_t s = 0; s < kSides; ++s) {
      if (sides_[s]->unfinished != 0) return false;
      for (size_t l = 0; l < kLanes; ++l) {
        if (sides_[1 - s]->received[l] != sides_[s]->SentOn(l)) return false;
      }
    }
    return true;
  }

  std::string Describe() const {
    std::string text;
    for (size_t s = 0; s < kSides; ++s) {
      const Side& side = *sides_[s];
      text += fmt::format("\nside {}: sent {} + {}, the other has {} + {}, {} unfinished; {}", s,
                          side.SentOn(0), side.SentOn(1), sides_[1 - s]->received[0],
                          sides_[1 - s]->received[1], side.unfinished, Message(side.closed));
    }
    return text;
  }

  void EndByClose(bool when_idle) {
    Side& closer = *sides_[closer_];
    if (when_idle) {
      RunUntil([&] { return AllThere(); });
      ASSERT_TRUE(AllThere()) << "frames are missing: " << Describe();
    } else {
      const MonoTime time = loop_->loop()->now() + random_.Up(absl::Seconds(20));
      RunUntil([&] { return loop_->loop()->now() >= time; });
    }
    closer.link->Close(Deadline::At(loop_->loop()->now() + absl::Minutes(2)), false);
    const std::array<uint64_t, kLanes> accepted{closer.SentOn(0), closer.SentOn(1)};
    RunUntil([&] { return !sides_[0]->closed.ok() && !sides_[1]->closed.ok(); });
    EXPECT_EQ(closer.closed.code(), absl::StatusCode::kCancelled) << closer.closed;
    EXPECT_EQ(sides_[1 - closer_]->closed.code(), absl::StatusCode::kUnavailable)
        << sides_[1 - closer_]->closed;
    EXPECT_EQ(sides_[1 - closer_]->received, accepted) << "what was accepted before Close";
  }

  void EndByCut() {
    const absl::Duration time = random_.Up(absl::Seconds(10));
    At(time, [this] { faults_[0].Cut(); });
    // Nothing mends it.
    At(time, [this] { never_restore_ = true; });
    RunUntil([&] { return !sides_[0]->closed.ok() && !sides_[1]->closed.ok(); });
    for (const auto& side : sides_) {
      EXPECT_EQ(side->closed.code(), absl::StatusCode::kUnavailable) << side->closed;
    }
  }

  // What a `done` says is so.
  void CheckDones() {
    for (size_t s = 0; s < kSides; ++s) {
      EXPECT_EQ(sides_[s]->unfinished, 0u);
      for (size_t l = 0; l < kLanes; ++l) {
        for (uint64_t i = 0; i < sides_[s]->SentOn(l); ++i) {
          if (sides_[s]->sent[l][i]->ok) {
            EXPECT_LT(i, sides_[1 - s]->received[l]) << "said to be taken, and was not";
          }
        }
      }
    }
  }

  void Shutdown() {
    int gone = 0;
    for (const auto& hub : hubs_) hub->Shutdown([&gone] { ++gone; });
    RunUntil([&] { return gone == 2; });
    EXPECT_EQ(gone, 2) << "something is left behind";
  }

  void RunUntil(const std::function<bool()>& condition) {
    const MonoTime limit = loop_->loop()->now() + kLimit;
    while (!condition() && loop_->Step(limit)) {
      if (never_restore_) faults_[0].Cut();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  const LinkKey key_{RunId("sim-000000"), Stamp(1), EdgeId(0)};
  Random random_;
  std::string listener_address_;
  const std::unique_ptr<ManualLoop> loop_ = *ManualLoop::Create(MonoTime() + absl::Hours(1));
  std::array<Faults, kSides> faults_;
  std::array<std::shared_ptr<Side>, kSides> sides_{std::make_shared<Side>(),
                                                   std::make_shared<Side>()};
  std::array<std::shared_ptr<Hub>, kSides> hubs_;
  size_t closer_ = 0;
  int bursts_left_ = 0;
  bool never_restore_ = false;
};

TEST(LinkSimTest, EveryFrameOnceWhateverBreaks) {
  uint64_t first = 1, last = kSeeds;
  if (const char* text = std::getenv("LONGHAUL_SEED")) {
    first = last = std::strtoull(text, nullptr, 10);
  } else if (const char* count = std::getenv("LONGHAUL_SEEDS")) {
    last = std::strtoull(count, nullptr, 10);
  }
  std::map<std::string, int> seen;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("LONGHAUL_SEED=" + std::to_string(seed));
    World world(seed);
    world.Run();
    if (HasFailure()) {
      std::fprintf(stderr, "LONGHAUL_SEED=%llu\n", static_cast<unsigned long long>(seed));
      return;
    }
    world.AddTo(&seen);
  }
  for (const auto& [what, count] : seen) {
    std::fprintf(stderr, "%s: %d\n", what.c_str(), count);
    RecordProperty(what, count);
  }
  if (first == last) return;
  // Walks that never meet a situation prove nothing about it.
  for (const char* what :
       {"suspect", "healthy", "lost", "healed", "resent", "repeated", "reconnects"}) {
    EXPECT_GT(seen[what], 0) << what;
  }
}

}  // namespace
}  // namespace longhaul::transport::internal

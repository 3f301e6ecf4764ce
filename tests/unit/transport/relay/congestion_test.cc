#include "transport/relay/congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/unique_fd.h"

namespace longhaul::relay {
namespace {

// Samples of a line whose shortest round trip is 50 ms.
class Line {
 public:
  // `lost`: segments that were sent again since the last sample.
  bool Step(LossWatch& watch, uint64_t lost, absl::Duration round_trip = absl::Milliseconds(51)) {
    now_.segments_sent += 100;
    now_.segments_resent += lost;
    now_.round_trip = round_trip;
    now_.shortest_round_trip = shortest;
    return watch.Take(now_);
  }
  absl::Duration shortest = absl::Milliseconds(50);

 private:
  LineSample now_;
};

TEST(LossWatchTest, LossesOfALongLineThatIsNotFullDecide) {
  LossWatch watch;
  Line line;
  EXPECT_FALSE(line.Step(watch, 1));
  EXPECT_FALSE(line.Step(watch, 0));
  EXPECT_TRUE(line.Step(watch, 1));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(line.Step(watch, 1)) << "decided once";
}

TEST(LossWatchTest, ManySegmentsOfOneLossAreOneLoss) {
  LossWatch watch;
  Line line;
  EXPECT_FALSE(line.Step(watch, 400));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(line.Step(watch, 0));
}

// The kernel counts a segment as sent again before the peer says that it had it.
TEST(LossWatchTest, WhatThePeerHadIsNoLoss) {
  LossWatch watch;
  LineSample sample{.segments_sent = 100,
                    .segments_resent = 1,
                    .round_trip = absl::Milliseconds(51),
                    .shortest_round_trip = absl::Milliseconds(50)};
  EXPECT_FALSE(watch.Take(sample));
  for (int i = 0; i < 10; ++i) {
    sample.segments_sent += 100;
    sample.segments_resent = i % 2;
    EXPECT_FALSE(watch.Take(sample));
  }
}

TEST(LossWatchTest, AFullQueueLosesPacketsToo) {
  LossWatch watch;
  Line line;
  // Cubic goes on at 0.7 of the window that filled line and queue.
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(line.Step(watch, 1, absl::Milliseconds(70)));
}

TEST(LossWatchTest, AShortLineRecoversSoon) {
  LossWatch watch;
  Line line;
  line.shortest = absl::Milliseconds(4);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(line.Step(watch, 1, absl::Milliseconds(4)));
  EXPECT_GT(watch.bytes_to_next_sample(), LossWatch().bytes_to_next_sample());
  // The first round trips may have been of a line that was just set up.
  line.shortest = absl::Milliseconds(50);
  EXPECT_FALSE(line.Step(watch, 1));
  EXPECT_TRUE(line.Step(watch, 1));
}

// Steps without a loss, of this many segments in all.
bool StepWithoutLoss(LossWatch& watch, Line& line, uint64_t segments) {
  for (uint64_t i = 0; i < segments; i += 100) {
    if (line.Step(watch, 0)) return true;
  }
  return false;
}

TEST(LossWatchTest, FewLossesInManySegmentsDoNotMatter) {
  LossWatch watch;
  Line line;
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_FALSE(line.Step(watch, 1));
    EXPECT_FALSE(StepWithoutLoss(watch, line, LossWatch::kSegmentsOfThree / 2));
  }
}

TEST(LossWatchTest, ThreeLossesMayBeFartherApartThanTwo) {
  LossWatch watch;
  Line line;
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(line.Step(watch, 1));
    EXPECT_FALSE(StepWithoutLoss(watch, line, 2 * LossWatch::kSegmentsOfTwo));
  }
  EXPECT_TRUE(line.Step(watch, 1));
}

// Two ends of a TCP connection over loopback.
struct Pair {
  UniqueFd one, other;
};
Pair Connected() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  Pair pair;
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  pair.one.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::setsockopt(pair.one.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
  EXPECT_EQ(::connect(pair.one.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  pair.other.Reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return pair;
}
std::string ControlOf(const UniqueFd& fd) {
  std::array<char, 32> name{};
  socklen_t size = name.size() - 1;
  EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

TEST(CongestionTest, TheKernelTellsOfWhatWasSent) {
  const Pair pair = Connected();
  const std::string bytes(10'000, 'x');
  ASSERT_EQ(::send(pair.one.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  std::string got(bytes.size(), '\0');
  ASSERT_EQ(::recv(pair.other.get(), got.data(), got.size(), MSG_WAITALL),
            static_cast<ssize_t>(got.size()));
  const StatusOr<LineSample> sample = SampleLine(pair.one.get());
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_GE(sample->segments_sent, 1);
  EXPECT_GT(sample->round_trip, absl::ZeroDuration());
  EXPECT_GT(sample->shortest_round_trip, absl::ZeroDuration());
  EXPECT_LT(sample->shortest_round_trip, absl::Hours(1));
  const UniqueFd none(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(SampleLine(none.get()).ok());
}

TEST(CongestionTest, ASocketSendsAsItWasAsked) {
  const Pair pair = Connected();
  ASSERT_EQ(ControlOf(pair.one), "reno");
  // Reno is built into every kernel, and everybody may choose it.
  const Status status = UseCongestionControl(pair.one.get(), "reno", AllowedCongestionControls());
  EXPECT_TRUE(status.ok()) << status;
  const std::string allowed = AllowedCongestionControls().value_or("");
  if (allowed.find("bbr") == std::string::npos) return;
  ASSERT_TRUE(UseCongestionControl(pair.one.get(), "bbr", allowed).ok());
  EXPECT_EQ(ControlOf(pair.one), "bbr");
  // Now it was chosen, and stays.
  EXPECT_TRUE(absl::IsAlreadyExists(UseCongestionControl(pair.one.get(), "reno", allowed)));
  EXPECT_EQ(ControlOf(pair.one), "bbr");
}

TEST(CongestionTest, SaysWhatTheOwnerOfTheMachineDoes) {
  const Pair pair = Connected();
  for (const auto& allowed :
       {std::optional<std::string>("reno cubic xbbr bbr2\n"), std::optional<std::string>("")}) {
    const Status status = UseCongestionControl(pair.one.get(), "bbr", allowed);
    ASSERT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(Message(status).find("modprobe tcp_bbr"), std::string::npos) << status;
    EXPECT_NE(Message(status).find("tcp_allowed_congestion_control"), std::string::npos) << status;
  }
  // Where the list cannot be read, the kernel decides.
  const Status status = UseCongestionControl(pair.one.get(), "nosuch", std::nullopt);
  ASSERT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(Message(status).find("the kernel refuses nosuch"), std::string::npos) << status;
  EXPECT_EQ(ControlOf(pair.one), "reno");
}

}  // namespace
}  // namespace longhaul::relay
